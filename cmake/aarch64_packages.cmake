# SPDX-License-Identifier: Apache-2.0
#
# Packages of the cross build. Debian has them for the host's architecture only, but what we need of them is not bound
# to one: the sources of GoogleTest and the headers of fmt and nlohmann/json. A link to each folder of headers, because
# /usr/include as a whole would put the host's C library before the target's.
function(mxk_headers target folder)  # [definition...]
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/headers)
  file(CREATE_LINK /usr/include/${folder} ${CMAKE_BINARY_DIR}/headers/${folder} SYMBOLIC)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} INTERFACE ${CMAKE_BINARY_DIR}/headers)
  target_compile_definitions(${target} INTERFACE ${ARGN})
endfunction()

macro(mxk_provide_package method name)
  if("${name}" STREQUAL "GTest")
    set(BUILD_GMOCK OFF)
    set(INSTALL_GTEST OFF)
    add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
    set(GTest_FOUND TRUE)
  elseif("${name}" STREQUAL "fmt")
    mxk_headers(fmt::fmt fmt FMT_HEADER_ONLY)
    set(fmt_FOUND TRUE)
  elseif("${name}" STREQUAL "nlohmann_json")
    mxk_headers(nlohmann_json::nlohmann_json nlohmann)
    set(nlohmann_json_FOUND TRUE)
  endif()
endmacro()
cmake_language(SET_DEPENDENCY_PROVIDER mxk_provide_package SUPPORTED_METHODS FIND_PACKAGE)
