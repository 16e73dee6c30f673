// SPDX-License-Identifier: Apache-2.0
//
// Counts what a program allocates, through malloc where that can be watched (with a sanitizer, and on x86 with a
// dynamic glibc), else through operator new. To be included by one file of a program, whose allocator it replaces.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace mxk::test {

inline std::atomic<long> allocations{0};

// Of all threads, while f runs.
template <class F>
long allocations_during(F&& f) {
  const long before = allocations.load();
  f();
  return allocations.load() - before;
}

}  // namespace mxk::test

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MXK_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define MXK_SANITIZED 1
#endif
#endif

#if defined(MXK_SANITIZED)
// Sanitizers have their own allocator, and let a program watch it.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                                         void (*)(const volatile void*));
namespace mxk::test {
inline const int hooks_installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t) { ++allocations; }, [](const volatile void*) {});
}  // namespace mxk::test
#elif defined(__GLIBC__) && defined(__x86_64__)
// operator new calls malloc, so these see it too. What they return is for the C library's own free().
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t n) noexcept {
  ++mxk::test::allocations;
  return __libc_malloc(n);
}
void* calloc(size_t count, size_t n) noexcept {
  ++mxk::test::allocations;
  return __libc_calloc(count, n);
}
void* realloc(void* p, size_t n) noexcept {
  ++mxk::test::allocations;
  return __libc_realloc(p, n);
}
void* aligned_alloc(size_t align, size_t n) noexcept {
  ++mxk::test::allocations;
  return __libc_memalign(align, n);
}
}
#else
// Not inlined: g++ takes half of a pair that it sees through for a mismatch.
#define MXK_REPLACED __attribute__((noinline))
MXK_REPLACED void* operator new(size_t n) {
  ++mxk::test::allocations;
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
MXK_REPLACED void* operator new(size_t n, std::align_val_t align) {
  ++mxk::test::allocations;
  const size_t a = static_cast<size_t>(align);
  if (void* p = std::aligned_alloc(a, (n + a) / a * a)) return p;
  throw std::bad_alloc();
}
MXK_REPLACED void operator delete(void* p) noexcept { std::free(p); }
MXK_REPLACED void operator delete(void* p, size_t) noexcept { std::free(p); }
MXK_REPLACED void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
MXK_REPLACED void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
#endif
