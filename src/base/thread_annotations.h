// Which lock guards what, for clang's -Wthread-safety: an access without the lock that GUARDED_BY names, or a call
// without the lock that REQUIRES names, does not compile. Other compilers ignore the annotations.
// docs/internals/locking.md.
#pragma once

#ifdef __clang__
#define FARSIDE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define FARSIDE_THREAD_ANNOTATION(x)
#endif

// Of classes: a lock, and an object that holds a lock as long as it exists.
#define CAPABILITY(name) FARSIDE_THREAD_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY FARSIDE_THREAD_ANNOTATION(scoped_lockable)

// Of variables: they are accessed only while the lock is held, or what they point to is.
#define GUARDED_BY(lock) FARSIDE_THREAD_ANNOTATION(guarded_by(lock))
#define PT_GUARDED_BY(lock) FARSIDE_THREAD_ANNOTATION(pt_guarded_by(lock))

// Of functions: the caller holds the lock, or does not hold it.
#define REQUIRES(...) FARSIDE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) FARSIDE_THREAD_ANNOTATION(requires_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) FARSIDE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

// Of functions: they take the lock or release it; without an argument, that of the object itself.
#define ACQUIRE(...) FARSIDE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) FARSIDE_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) FARSIDE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) FARSIDE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) FARSIDE_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
// The lock is held, as a check at run time shows: where the analysis does not follow, as in lambda functions.
#define ASSERT_CAPABILITY(...) FARSIDE_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))
#define RETURN_CAPABILITY(lock) FARSIDE_THREAD_ANNOTATION(lock_returned(lock))

// Of functions that the analysis cannot follow. A comment beside it says why.
#define NO_THREAD_SAFETY_ANALYSIS FARSIDE_THREAD_ANNOTATION(no_thread_safety_analysis)
