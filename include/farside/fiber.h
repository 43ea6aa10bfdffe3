/* Farside's fibers: thousands of cheap threads of control over a few workers. A fiber that waits - for another fiber,
 * a socket, time, or a page of far memory - costs nothing but its stack while others run.
 *
 *   static void serve(void *socket) { ... farside_fiber_read(fd, buffer, sizeof buffer) ... }
 *   static void first(void *unused) { ... farside_fiber_spawn(NULL, serve, &fd) ... }
 *   int main(void) { return farside_fiber_run(4, first, NULL) ? 1 : 0; }
 *
 * Works in any program; in one that runs under `farside run` a fiber that touches an absent page lets others run until
 * the page is there. C++ has lambdas and RAII in <farside/fiber.hpp>. The whole story is in docs/guide/fibers.md.
 *
 * Results are 0 (or a count) or a negative errno value; errno itself is not touched. Everything but
 * farside_fiber_run, _set_stack_size, and the _create and _destroy functions must be called by a fiber, and gives
 * -EPERM elsewhere. None may be called from a signal handler. A fiber moves between threads at every call marked
 * [may block]: neither thread-locals nor errno keep over one. */
#ifndef FARSIDE_FIBER_H
#define FARSIDE_FIBER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct farside_fiber farside_fiber;
typedef struct farside_fiber_mutex farside_fiber_mutex;
typedef struct farside_fiber_condition farside_fiber_condition;
typedef struct farside_fiber_group farside_fiber_group;
typedef struct farside_fiber_channel farside_fiber_channel;

/* ---- Runs ---- */

/* Runs function(argument) as the first fiber on this thread and workers - 1 new ones (0: one worker a processor), and
 * returns when all fibers have ended. When all fibers wait for each other the process ends with a message. -EINVAL
 * (more than 256 workers), -EBUSY (a run is under way), -ENOMEM, -EAGAIN (no threads), -EMFILE. */
int farside_fiber_run(unsigned workers, void (*function)(void*), void* argument);

/* Bytes of stack for each fiber of later runs, 16 KiB to 1 GiB, rounded up to pages; 64 KiB without this call. Below
 * each stack lies a guard page: who overflows gets SIGSEGV. -EINVAL, -EBUSY. */
int farside_fiber_set_stack_size(size_t bytes);

/* ---- Fibers ---- */

/* Starts function(argument) in a new fiber, which must be joined or detached; fiber may be NULL: detached. No exception
 * may leave the function. -ENOMEM. */
int farside_fiber_spawn(farside_fiber** fiber, void (*function)(void*), void* argument);

/* Waits for the fiber's end; its handle is gone afterwards. [may block] -EINVAL (detached, or somebody else joins it),
 * -EDEADLK (itself). */
int farside_fiber_join(farside_fiber* fiber);

/* Nobody will join it; its handle is gone afterwards. -EINVAL. */
int farside_fiber_detach(farside_fiber* fiber);

/* Lets others run. [may block] */
int farside_fiber_yield(void);

/* Lets others run for at least so long. [may block] */
int farside_fiber_sleep(uint64_t nanoseconds);

/* Until _release, a fault on far memory stops the whole worker and not just this fiber. For calls of code that holds
 * locks of threads over such accesses - stdio, a logger, a std::mutex: another fiber of the worker that wanted the lock
 * would block the only thread that can go on with this one, or, where the lock is recursive, would get it. May be
 * nested. -EINVAL: not held. */
int farside_fiber_hold(void);
int farside_fiber_release(void);

/* The calling fiber; NULL outside of fibers. */
farside_fiber* farside_fiber_self(void);

/* ---- Mutex: first come, first served ---- */

int farside_fiber_mutex_create(farside_fiber_mutex** mutex);
int farside_fiber_mutex_destroy(farside_fiber_mutex* mutex); /* -EBUSY: held */
int farside_fiber_mutex_lock(farside_fiber_mutex* mutex);    /* [may block] -EDEADLK: the caller holds it */
int farside_fiber_mutex_trylock(farside_fiber_mutex* mutex); /* -EBUSY: held */
int farside_fiber_mutex_unlock(farside_fiber_mutex* mutex);  /* -EPERM: the caller does not hold it */

/* ---- Condition variable: wakes in order, and never without a signal ---- */

int farside_fiber_condition_create(farside_fiber_condition** condition);
int farside_fiber_condition_destroy(farside_fiber_condition* condition); /* -EBUSY: fibers wait */
/* Lets the mutex go, waits, and takes it again. [may block] -EPERM: the caller does not hold it. */
int farside_fiber_condition_wait(farside_fiber_condition* condition, farside_fiber_mutex* mutex);
int farside_fiber_condition_signal(farside_fiber_condition* condition);
int farside_fiber_condition_broadcast(farside_fiber_condition* condition);

/* ---- Wait group: a count, and fibers that wait until it is zero ---- */

int farside_fiber_group_create(farside_fiber_group** group);
int farside_fiber_group_destroy(farside_fiber_group* group);            /* -EBUSY: fibers wait */
int farside_fiber_group_add(farside_fiber_group* group, int64_t count); /* count < 0: done; -EINVAL: below zero */
int farside_fiber_group_wait(farside_fiber_group* group);               /* [may block] */

/* ---- Channel: a queue of pointers for any number of senders and receivers, in order ---- */

/* capacity 0: a sender waits until its item is received. -EINVAL: more than 2^24. */
int farside_fiber_channel_create(farside_fiber_channel** channel, size_t capacity);
/* Hands items still in it to forget, if that is not NULL. -EBUSY: fibers wait. */
int farside_fiber_channel_destroy(farside_fiber_channel* channel, void (*forget)(void* item));
int farside_fiber_channel_send(farside_fiber_channel* channel, void* item);     /* [may block] -EPIPE: closed */
int farside_fiber_channel_try_send(farside_fiber_channel* channel, void* item); /* -EAGAIN: full; -EPIPE */
int farside_fiber_channel_receive(farside_fiber_channel* channel, void** item); /* [may block] -EPIPE: closed, empty */
int farside_fiber_channel_try_receive(farside_fiber_channel* channel, void** item); /* -EAGAIN: empty; -EPIPE */
/* No item gets in any more; who waits to send or receive gets -EPIPE. */
int farside_fiber_channel_close(farside_fiber_channel* channel);

/* ---- Sockets, and pipes for read and write ---- */

/* As the system calls of a blocking descriptor, but only the fiber waits; the descriptor may be in either mode, and
 * becomes non-blocking where the call needs it (accept, connect, and read and write of what is no socket). All [may
 * block] and give the system call's errors, negated. SIGPIPE is never raised: -EPIPE. */
int farside_fiber_accept(int fd, struct sockaddr* address, socklen_t* length);
int farside_fiber_connect(int fd, const struct sockaddr* address, socklen_t length);
ssize_t farside_fiber_read(int fd, void* buffer, size_t bytes);
/* Writes all; fewer only if an error came after some were written. */
ssize_t farside_fiber_write(int fd, const void* buffer, size_t bytes);
ssize_t farside_fiber_recv(int fd, void* buffer, size_t bytes, int flags);
ssize_t farside_fiber_send(int fd, const void* buffer, size_t bytes, int flags);

#define FARSIDE_FIBER_READABLE 1
#define FARSIDE_FIBER_WRITABLE 2
/* Waits until the descriptor is ready for one of these, for calls that are not above. [may block] */
int farside_fiber_wait_ready(int fd, int events);

/* Closes the descriptor; fibers that wait for it get -EBADF. With close(2) they would wait for ever. */
int farside_fiber_close(int fd);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
