/* Functions on the memory server: a program calls a function where its far data is, and only the arguments and the
 * result move. C programs use this header; C++ programs <farside/offload.hpp>.
 *
 * The function runs in an isolated process of the memory server. It finds the ranges that the call names at the same
 * addresses as in the program, so pointers between them are valid. It finds nothing else of the program: no other
 * memory, no global variables as the program left them, no files, no network, no threads.
 *
 * Errors: functions return 0 or a negative errno value. Thread-safe. [may block] functions wait for the server; in a
 * fiber only the fiber waits.
 *
 * Source of the idea: AIFM 4.2.4 (docs/references.md). Guide: docs/guide/offload.md. */
#ifndef FARSIDE_OFFLOAD_H
#define FARSIDE_OFFLOAD_H

#include <farside/version.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the arguments of one call, and of its result. */
#define FARSIDE_OFFLOAD_MAX_BYTES ((size_t)1 << 20)
/* Ranges of one call. */
#define FARSIDE_OFFLOAD_MAX_RANGES 256

/* Where a call is executed. */
enum farside_offload_mode {
  FARSIDE_OFFLOAD_AUTOMATIC = 0, /* where it is expected to take less time; locally where no server offers calls */
  FARSIDE_OFFLOAD_SERVER = 1,    /* on the server; -EOPNOTSUPP where that is not possible */
  FARSIDE_OFFLOAD_LOCAL = 2      /* in the program */
};

/* What a called function writes its result to. */
struct farside_offload_output {
  void* data;      /* of `capacity` bytes */
  size_t capacity; /* FARSIDE_OFFLOAD_MAX_BYTES */
  size_t bytes;    /* set by the function: of its result */
};

/* A function that can be called. function: that of the request, at its address in the process that executes the call.
 * Returns 0; or a negative errno value, which becomes the error of the call, and then the output is its text. */
typedef int (*farside_offload_entry)(void* function, const void* arguments, size_t bytes,
                                     struct farside_offload_output* output);

/* Memory that a call reads or writes. Servers see it in whole pages of 4096 bytes.
 *
 * Or data structures of far objects (<farside/object.h>): then the function may follow owners inside their objects, of
 * up to 4080 bytes, to other objects of the structures that the call names. It finds all of them where their owners
 * say: none is moved during the call, so another thread that uses one which would be moved waits for its end. The
 * program may use the objects meanwhile, but must not change those that the function reads, nor owners of these. A
 * pointer to the first object is an argument: its address, looked up with FARSIDE_OBJECT_UNFETCHED in a scope that is
 * open until the call has ended. */
struct farside_offload_range {
  void* data;
  size_t bytes;
  int written;         /* 0: only read */
  uint64_t structures; /* not 0: data and bytes are unused, and bit n stands for structure n, bit 0 for objects of none;
                          only read */
};

struct farside_offload_request {
  farside_offload_entry entry;
  void* function; /* passed to the entry; NULL, or a function of the program or of a shared object */
  const void* arguments;
  size_t argument_bytes;
  const struct farside_offload_range* ranges;
  size_t range_count;
  enum farside_offload_mode mode;
};

struct farside_offload_reply {
  struct farside_offload_output result; /* data and capacity are set by the caller */
  int on_server;                        /* the function was executed by a server */
  int written_undefined; /* after an error: the function may have run in part, so the written ranges are undefined */
  char text[160];        /* after an error: what happened, without a newline */
};

/* Executes a call of a function on a memory server, or locally. [may block] Far memory that the ranges name must not be
 * written by other threads meanwhile; written ranges must not be accessed at all, and accesses to other bytes of their
 * pages wait. Errors, besides those that the function returns: -EOPNOTSUPP  mode SERVER, and no server offers calls, or
 * the ranges are not all far memory of one server -EINVAL, -E2BIG  too many ranges or bytes; a range that wraps around;
 * no such structure, or a written one -EBUSY       mode SERVER, and objects of the structures have been being moved for
 * a second; try again -EPERM       the server does not allow calls to the holder of this token -ENOEXEC     the server
 * cannot load the program or shared object, or the function is not in it -EFAULT      the function crashed, or accessed
 * memory outside of the ranges -ETIME       the function exceeded its limit on processor or wall time -ENOMEM      the
 * server has no memory for the written ranges -ECONNRESET  the connection to the server broke */
int farside_offload_call(const struct farside_offload_request* request, struct farside_offload_reply* reply);

struct farside_offload_task;

/* Starts a call of a function on a memory server; farside_offload_finish() waits for its end [may block], returns its
 * result as farside_offload_call() does, and frees the task. What the request points to, and the reply, stay valid
 * until then. A call that is executed locally runs in farside_offload_finish(). Errors: -ENOMEM. */
int farside_offload_start(const struct farside_offload_request* request, struct farside_offload_reply* reply,
                          struct farside_offload_task** task);
int farside_offload_finish(struct farside_offload_task* task);

/* Returns the number of servers of this process that offer calls; 0 without Farside. The first call may block for one
 * round trip to each server. */
int farside_offload_servers(void);

/* Returns the server, counted from 0, that holds the byte at `address`; *same_bytes, at most `bytes`, is the number of
 * bytes from `address` on that it holds. -1: no server that offers calls. Cost: a table look-up for each 16 MiB. */
int farside_offload_place(const void* address, size_t bytes, size_t* same_bytes);

#ifdef __cplusplus
}
#endif
#endif
