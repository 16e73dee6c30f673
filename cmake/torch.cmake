# SPDX-License-Identifier: Apache-2.0
#
# PyTorch, as the package of the Python that the build was given (Python3_EXECUTABLE): its headers and its libraries,
# without find_package(Torch), which asks for a CUDA toolkit when the package was built with CUDA.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
# -I: pip builds in an environment of its own, which hides the packages of the one it installs to; this looks past it.
execute_process(
  COMMAND ${Python3_EXECUTABLE} -I -c "
import os, torch
print(torch.__version__, os.path.dirname(torch.__file__), int(torch.compiled_with_cxx11_abi()), sep=';')"
  OUTPUT_VARIABLE torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE why RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "mxk: MXK_TORCH is on, but ${Python3_EXECUTABLE} has no usable torch: ${why}\n"
                      "Install torch >= 2.6 first (`pip install torch==2.13.0` is a CPU build), or set "
                      "Python3_EXECUTABLE to a Python that has it.")
endif()
list(GET torch 0 version)
list(GET torch 1 root)
list(GET torch 2 cxx11_abi)
if(version VERSION_LESS 2.6)
  message(FATAL_ERROR "mxk: torch ${version} is too old, 2.6 or later is needed")
endif()
message(STATUS "mxk: torch ${version} in ${root}")
set(MXK_TORCH_ROOT ${root})

add_library(mxk_libtorch INTERFACE)
target_include_directories(mxk_libtorch SYSTEM INTERFACE ${root}/include ${root}/include/torch/csrc/api/include)
target_link_directories(mxk_libtorch INTERFACE ${root}/lib)
target_link_libraries(mxk_libtorch INTERFACE torch_cpu c10)
target_compile_definitions(mxk_libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=${cxx11_abi})

# MXK_OP_SOURCES, MXK_OP_CPU_SOURCES: what every op library is made of (build.sh has the same list), and the one for CPUs
# besides.
set(MXK_OP_SOURCES torch/ops.cc torch/about.cc tpc/kernels.cc tpc/selfcheck.cc)
set(MXK_OP_CPU_SOURCES torch/cpu.cc torch/engines.cc torch/moe_decode.cc)

# mxk_op_library(NAME file...): an op library of these files of src, all it stands on inside.
function(mxk_op_library name)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/src/ OUTPUT_VARIABLE sources)
  add_library(${name} MODULE ${sources})
  target_link_libraries(${name} PRIVATE mxk_rules mxk_libtorch)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden BUILD_RPATH ${MXK_TORCH_ROOT}/lib)
endfunction()

# The package: python/mxk with its op library, in the build tree as it will be installed.
mxk_op_library(mxk_op_cpu ${MXK_OP_SOURCES} ${MXK_OP_CPU_SOURCES})
target_link_libraries(mxk_op_cpu PRIVATE mxk)
set_target_properties(mxk_op_cpu PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/mxk
                                            INSTALL_RPATH "$ORIGIN/../torch/lib")
if(SKBUILD)
  install(TARGETS mxk_op_cpu DESTINATION mxk)
endif()
