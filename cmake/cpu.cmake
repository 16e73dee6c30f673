# SPDX-License-Identifier: Apache-2.0
#
# CPU kernels: one file per instruction set, compiled with its own flags; everything else stays at the baseline of the
# architecture. Adding an instruction set is one line here and one row in src/core/backends.inc.
set(MXK_CPU_SOURCES src/cpu/cpu.cc src/cpu/driver.cc src/cpu/features.cc src/cpu/generic.cc)
set(MXK_ISA_FILES "")  # what tests/isa_test checks for foreign instructions

# Kernels want their loops over registers unrolled, which g++ does at -O3 only; packagers and RelWithDebInfo build at -O2.
set(MXK_KERNEL_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O3>)
set_source_files_properties(src/cpu/generic.cc PROPERTIES COMPILE_OPTIONS "${MXK_KERNEL_OPTIONS}")

function(mxk_isa file)
  set_source_files_properties(src/cpu/${file}.cc PROPERTIES COMPILE_OPTIONS "${MXK_KERNEL_OPTIONS};${ARGN}")
  set(MXK_CPU_SOURCES ${MXK_CPU_SOURCES} src/cpu/${file}.cc PARENT_SCOPE)
  set(MXK_ISA_FILES ${MXK_ISA_FILES} ${file} PARENT_SCOPE)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  mxk_isa(avx2 -mavx2 -mfma)
  mxk_isa(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma)
  mxk_isa(avx512bf16 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mfma)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  mxk_isa(neon)
endif()
