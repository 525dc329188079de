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
if(ATOLL_SANITIZE) # an interpreter: sanitized like the rest, optimised nevertheless
    target_compile_options(atoll_emulated_cuda PRIVATE -O2)
endif()
set_target_properties(atoll_emulated_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

file(GLOB emulator_sources CONFIGURE_DEPENDS tests/cuda_emulator/cublaslt*.c)
add_library(atoll_emulated_cublaslt SHARED ${emulator_sources} tests/cuda_emulator/narrow.c)
target_link_libraries(atoll_emulated_cublaslt PRIVATE atoll_emulated_cuda m)
target_link_options(atoll_emulated_cublaslt PRIVATE -Wl,-z,nodelete) # its work may still be pending
# found beside each other, so that both work on one device
set_target_properties(atoll_emulated_cublaslt PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")

# ---- its tests ----
find_library(NVRTC_LIBRARY nvrtc PATHS /usr/local/cuda/lib64 /usr/local/cuda-13.0/lib64)
find_path(CUDA_INCLUDE cublasLt.h PATHS /usr/local/cuda/include)
file(GLOB emulator_tests CONFIGURE_DEPENDS tests/cuda_emulator/test_emulator_*.c)
add_library(emulator_test_support STATIC tests/cuda_emulator/test_support.c tests/cuda_emulator/test_kernel_checks.c
    tests/cuda_emulator/narrow.c)
target_link_libraries(emulator_test_support PUBLIC atoll_emulated_cublaslt atoll_emulated_cuda PkgConfig::CHECK ${CMAKE_DL_LIBS} m)
target_compile_definitions(emulator_test_support PUBLIC ATOLL_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
if(NVRTC_LIBRARY)
    target_compile_definitions(emulator_test_support PRIVATE ATOLL_NVRTC="${NVRTC_LIBRARY}")
endif()
foreach(file IN LISTS emulator_tests)
    get_filename_component(name ${file} NAME_WE)
    add_executable(${name} ${file})
    target_link_libraries(${name} PRIVATE emulator_test_support)
    if(name STREQUAL test_emulator_headers AND CUDA_INCLUDE)
        target_compile_definitions(${name} PRIVATE ATOLL_HAVE_CUDA_H)
        target_include_directories(${name} SYSTEM PRIVATE ${CUDA_INCLUDE})
    endif()
    add_test(NAME ${name} COMMAND ${name})
    describe_test(${name} cuda_emulator)
endforeach()
