# SPDX-License-Identifier: Apache-2.0
#
# What `cmake --install` lays down: library, headers, CMake package, pkg-config file, and the mxk command if built. Both
# package files find their prefix from where they lie, so an installed tree can be moved.
option(MXK_INSTALL "Make the install rules" ${PROJECT_IS_TOP_LEVEL})
if(NOT MXK_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(MXK_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/mxk)

install(TARGETS mxk EXPORT mxkTargets)
install(DIRECTORY include/mxk DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT mxkTargets NAMESPACE mxk:: DESTINATION ${MXK_CMAKE_DIR})
configure_package_config_file(cmake/mxkConfig.cmake.in mxkConfig.cmake INSTALL_DESTINATION ${MXK_CMAKE_DIR}
                              NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(mxkConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/mxkConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/mxkConfigVersion.cmake
        DESTINATION ${MXK_CMAKE_DIR})

set(MXK_PC_LIBS "-lmxk")
if(NOT BUILD_SHARED_LIBS)
  set(MXK_PC_LIBS "-lmxk -lstdc++ -lm -pthread")  # a C program has no other way to know
  if(MXK_TPC_EMU)
    list(TRANSFORM CMAKE_DL_LIBS PREPEND -l OUTPUT_VARIABLE dl)
    string(JOIN " " MXK_PC_LIBS ${MXK_PC_LIBS} ${dl})
  endif()
endif()
file(RELATIVE_PATH MXK_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/mxk.pc.in mxk.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/mxk.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET mxk_cli)
  file(RELATIVE_PATH MXK_BIN_TO_LIB ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(mxk_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${MXK_BIN_TO_LIB}")
  install(TARGETS mxk_cli)
endif()
