# The CUDA emulator: shared libraries with the Driver API's and cuBLASLt's names (docs/cuda_emulator.md), and
# its tests. They build without the toolkit; where it is installed, kernels come from NVRTC and the
# declarations are compared with the real headers.
file(GLOB emulator_sources CONFIGURE_DEPENDS tests/cuda_emulator/*.c)
list(FILTER emulator_sources EXCLUDE REGEX "/(test_|cublaslt)[^/]*\\.c$")
add_library(atoll_emulated_cuda SHARED ${emulator_sources})
# loops over lanes are simd loops; host threads are its own
target_compile_options(atoll_emulated_cuda PRIVATE -fopenmp-simd)
target_link_libraries(atoll_emulated_cuda PRIVATE Threads::Threads m)
# its findings are written when the process ends: never unloaded before
target_link_options(atoll_emulated_cuda PRIVATE -Wl,-z,nodelete)
set_target_properties(atoll_emulated_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
