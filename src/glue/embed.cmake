# SPDX-License-Identifier: Apache-2.0
#
# mxk_embed(TARGET NAME FILE [DEPENDS target...]): the bytes of FILE (a path, may be a generator expression) become part
# of TARGET, between the hidden symbols mxk_kernel_NAME_begin and _end. They may be the ELF file of a kernel for the
# card or the shared object of an emulated one; nothing here looks inside.

enable_language(ASM)

function(mxk_embed target name file)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "" "DEPENDS")
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/embed/${target}/${name}.bin)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embed/${target}/${name}.S)
  # A copy at a fixed path: a source can depend on that, and not on a generator expression.
  add_custom_command(OUTPUT ${copy} COMMAND ${CMAKE_COMMAND} -E copy ${file} ${copy} DEPENDS ${file} ${arg_DEPENDS}
                     VERBATIM)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
  .section .rodata
  .balign 64
  .globl mxk_kernel_@name@_begin
  .hidden mxk_kernel_@name@_begin
mxk_kernel_@name@_begin:
  .incbin "@copy@"
  .globl mxk_kernel_@name@_end
  .hidden mxk_kernel_@name@_end
mxk_kernel_@name@_end:
  .byte 0
  .section .note.GNU-stack, "", %progbits
]])
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${copy})
  target_sources(${target} PRIVATE ${source} ${copy})
endfunction()
