/* Farside's C interface to fibers: functions with separate stacks that a few worker threads run in turn. While a
 * fiber waits for another fiber, a socket, a time or a page of far memory, its worker runs others.
 *
 *   static void serve(void* socket) {
 *     char buffer[4096];
 *     int fd = *(int*)socket;
 *     ssize_t got;
 *     while ((got = farside_fiber_read(fd, buffer, sizeof buffer)) > 0) farside_fiber_write(fd, buffer, (size_t)got);
 *   }
 *   static void first(void* sockets) {
 *     for (int i = 0; i < 2; i++) farside_fiber_spawn(NULL, serve, (int*)sockets + i);
 *   }
 *   int main(void) {
 *     static int sockets[2] = {0, 1};
 *     return farside_fiber_run(4, first, sockets) == 0 ? 0 : 1;
 *   }
 *
 * Works in any program. Only under `farside run` does a page fault of one fiber let others run. C++ programs use
 * <farside/fiber.hpp>. Guide: docs/guide/fibers.md. Sources of the ideas: AIFM 5.1, Eden 3.2 (docs/references.md).
 *
 * Errors: functions return 0 (or a count) or a negative errno value; errno itself is not used. -EPERM: the caller is
 * not a fiber. Only farside_fiber_run, _set_stack_size, _self, and the _create and _destroy functions may be called
 * outside of fibers. No function may be called from a signal handler.
 *
 * Threads: a fiber may continue on another thread after every call marked [may block]. Thread-locals and errno are not
 * preserved over such a call. Objects of this interface may be used by all fibers of a run at the same time.
 *
 * Cost: a switch between fibers needs no system call. A fiber takes a stack: 64 KiB of addresses by default, of which
 * only touched pages use memory. */
#ifndef FARSIDE_FIBER_H
#define FARSIDE_FIBER_H

#include <farside/version.h>
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

/* Runs function(argument) as the first fiber, on the calling thread and workers - 1 new threads, and returns when all
 * fibers have ended. workers: 1 to 256; 0: one for each processor that the process may use. If all fibers wait for each
 * other, the process ends with a message. One run at a time. -EINVAL (more than 256 workers), -EBUSY (a run is in
 * progress), -ENOMEM, -EAGAIN (no more threads), -EMFILE. */
int farside_fiber_run(unsigned workers, void (*function)(void*), void* argument);

/* Sets the bytes of stack of each fiber, for later runs: 16 KiB to 1 GiB, rounded up to 4 KiB pages. The default is
 * 64 KiB. A guard page below each stack turns an overflow into SIGSEGV. -EINVAL (out of range), -EBUSY (a run is in
 * progress). */
int farside_fiber_set_stack_size(size_t bytes);

/* ---- Fibers ---- */

/* Starts function(argument) in a new fiber, which must be joined or detached. fiber: receives the handle; NULL: the
 * fiber is detached. A C++ exception that leaves the function ends the process. -ENOMEM. */
int farside_fiber_spawn(farside_fiber** fiber, void (*function)(void*), void* argument);

/* Waits until the fiber has ended. On success its handle is invalid afterwards. [may block] -EINVAL (detached, or
 * another fiber joins it), -EDEADLK (the caller itself). */
int farside_fiber_join(farside_fiber* fiber);

/* Declares that the fiber will not be joined. On success its handle is invalid afterwards. -EINVAL (detached already,
 * or another fiber joins it). */
int farside_fiber_detach(farside_fiber* fiber);

/* Lets other fibers run. [may block] */
int farside_fiber_yield(void);

/* Suspends the calling fiber for at least this time. [may block] */
int farside_fiber_sleep(uint64_t nanoseconds);

/* Keep a worker on its fiber: from _hold to _release, a page fault of the calling fiber stops its worker instead of
 * suspending the fiber. Use them around code that accesses far memory while it holds a lock of threads (stdio, a
 * logger, std::mutex). Otherwise another fiber of the worker that takes the lock blocks the only thread that can resume
 * this fiber; a recursive lock would even let it in. May be nested. -EINVAL: _release without _hold. */
int farside_fiber_hold(void);
int farside_fiber_release(void);

/* Returns the calling fiber's handle; NULL outside of fibers. */
farside_fiber* farside_fiber_self(void);

/* ---- Mutex: not recursive; fibers get it in the order of their calls ---- */

/* Creates an unlocked mutex of fibers. -ENOMEM. */
int farside_fiber_mutex_create(farside_fiber_mutex** mutex);
/* Destroys a mutex of fibers. -EBUSY: a fiber holds it. */
int farside_fiber_mutex_destroy(farside_fiber_mutex* mutex);
/* Locks a mutex of fibers; waits while another fiber holds it. [may block] -EDEADLK: the caller holds it. */
int farside_fiber_mutex_lock(farside_fiber_mutex* mutex);
/* Locks a mutex of fibers if no fiber holds it. -EBUSY: a fiber holds it. */
int farside_fiber_mutex_trylock(farside_fiber_mutex* mutex);
/* Unlocks a mutex of fibers, or passes it to the fiber that has waited longest. -EPERM: the caller does not hold it. */
int farside_fiber_mutex_unlock(farside_fiber_mutex* mutex);

/* ---- Condition variable: wakes fibers in the order of their calls; no spurious wake-ups ---- */

/* Creates a condition variable of fibers. -ENOMEM. */
int farside_fiber_condition_create(farside_fiber_condition** condition);
/* Destroys a condition variable of fibers. -EBUSY: fibers wait. */
int farside_fiber_condition_destroy(farside_fiber_condition* condition);
/* Unlocks the mutex, waits, and locks it again. [may block] -EPERM: the caller does not hold the mutex. */
int farside_fiber_condition_wait(farside_fiber_condition* condition, farside_fiber_mutex* mutex);
/* Wakes the fiber that has waited longest, if any waits. */
int farside_fiber_condition_signal(farside_fiber_condition* condition);
/* Wakes all fibers that wait. */
int farside_fiber_condition_broadcast(farside_fiber_condition* condition);

/* ---- Wait group: a count that begins at zero, and fibers that wait until it is zero ---- */

/* Creates a wait group of fibers, whose count is zero. -ENOMEM. */
int farside_fiber_group_create(farside_fiber_group** group);
/* Destroys a wait group. -EBUSY: fibers wait. */
int farside_fiber_group_destroy(farside_fiber_group* group);
/* Adds to the count, also a negative number; at zero the fibers that wait go on. -EINVAL: the sum is negative or
 * overflows. */
int farside_fiber_group_add(farside_fiber_group* group, int64_t count);
/* Waits until the count is zero. [may block] */
int farside_fiber_group_wait(farside_fiber_group* group);

/* ---- Channel: a bounded first-in-first-out queue of pointers, for any number of senders and receivers ---- */

/* Creates a channel. capacity: items that can be in it, up to 2^24 (-EINVAL); 0: a sender waits until its item is
 * received. -ENOMEM. */
int farside_fiber_channel_create(farside_fiber_channel** channel, size_t capacity);
/* Destroys a channel. Calls discard, if it is not NULL, for each item that is still in it. -EBUSY: fibers wait. */
int farside_fiber_channel_destroy(farside_fiber_channel* channel, void (*discard)(void* item));
/* Sends an item; waits while the channel is full. [may block] -EPIPE: closed. */
int farside_fiber_channel_send(farside_fiber_channel* channel, void* item);
/* Sends an item if there is room. -EAGAIN: full. -EPIPE: closed. */
int farside_fiber_channel_try_send(farside_fiber_channel* channel, void* item);
/* Receives the oldest item; waits while the channel is empty. [may block] -EPIPE: closed and empty. */
int farside_fiber_channel_receive(farside_fiber_channel* channel, void** item);
/* Receives the oldest item, if there is one. -EAGAIN: empty. -EPIPE: closed and empty. */
int farside_fiber_channel_try_receive(farside_fiber_channel* channel, void** item);
/* Closes a channel: later sends, and sends and receives that wait now, return -EPIPE. Items in the channel can still be
 * received. */
int farside_fiber_channel_close(farside_fiber_channel* channel);

/* ---- Sockets, and pipes for read and write ---- */

/* As the system calls of these names on a blocking descriptor, but only the calling fiber waits. The descriptor may be
 * in either mode; accept, connect, and read and write of a descriptor that is not a socket make it non-blocking. All
 * [may block], and return the system call's error as a negative value. Sockets do not raise SIGPIPE: -EPIPE. write
 * writes all bytes; it returns fewer only if an error occurred after some were written. */
int farside_fiber_accept(int fd, struct sockaddr* address, socklen_t* length);
int farside_fiber_connect(int fd, const struct sockaddr* address, socklen_t length);
ssize_t farside_fiber_read(int fd, void* buffer, size_t bytes);
ssize_t farside_fiber_write(int fd, const void* buffer, size_t bytes);
ssize_t farside_fiber_recv(int fd, void* buffer, size_t bytes, int flags);
ssize_t farside_fiber_send(int fd, const void* buffer, size_t bytes, int flags);

#define FARSIDE_FIBER_READABLE 1
#define FARSIDE_FIBER_WRITABLE 2
/* Waits until the descriptor is ready for one of these events, for system calls that are not above. events: the above,
 * combined by |. [may block] -EINVAL: none of them. */
int farside_fiber_wait_ready(int fd, int events);

/* Closes the descriptor; fibers that wait for it get -EBADF. close(2) would not wake them. */
int farside_fiber_close(int fd);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
