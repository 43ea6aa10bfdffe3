// The functions of include/farside/offload.h. Called by ordinary code.
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/clock.h"
#include "farside/fiber.hpp"
#include "offload/backend.h"

#define FARSIDE_PUBLIC __attribute__((visibility("default")))

// Runs on a thread of its own; one without a thread runs when it is waited for.
struct farside_offload_task {
  const farside_offload_request* request;
  farside_offload_reply* reply;
  farside::offload::Expected expected;
  int result = 0;
  int done = -1;  // an eventfd, on which fibers wait; -1: there is no thread
  pthread_t thread = {};
  ~farside_offload_task() {
    if (done >= 0) close(done);
  }
};

namespace farside::offload {
namespace {

Backend* g_backend = nullptr;

int check(const farside_offload_request& request, farside_offload_reply* reply) {
  if (request.range_count > FARSIDE_OFFLOAD_MAX_RANGES) return fail(reply, -E2BIG, "a call has at most 256 ranges");
  if (request.argument_bytes > FARSIDE_OFFLOAD_MAX_BYTES)
    return fail(reply, -E2BIG, "the arguments of a call have at most 1 MiB");
  bool wraps = std::any_of(request.ranges, request.ranges + request.range_count, [](const farside_offload_range& r) {
    return r.bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(r.data);
  });
  if (wraps) return fail(reply, -EINVAL, "a range of a call has no valid address");
  bool writes_objects = std::any_of(request.ranges, request.ranges + request.range_count,
                                    [](const farside_offload_range& r) { return r.written != 0 && r.structures != 0; });
  return writes_objects ? fail(reply, -EINVAL, "calls do not write data structures of far objects") : 0;
}

// 1: on a server; 0: in the program; negative: the call fails.
int choose(const farside_offload_request& request, farside_offload_reply* reply, Expected* expected) {
  reply->result.bytes = 0;
  reply->on_server = reply->written_undefined = 0;
  reply->text[0] = 0;
  if (int error = check(request, reply)) return error;
  if (request.mode == FARSIDE_OFFLOAD_LOCAL) return 0;
  if (g_backend) return g_backend->choose(request, reply, expected);
  if (request.mode == FARSIDE_OFFLOAD_AUTOMATIC) return 0;
  return fail(reply, -EOPNOTSUPP, "no memory server executes calls: the program does not run under Farside");
}

int call_here(const farside_offload_request& request, const Expected& expected, farside_offload_reply* reply) {
  uint64_t start = now_ns();
  int result = request.entry(request.function, request.arguments, request.argument_bytes, &reply->result);
  if (result < 0) {
    size_t length = std::min(reply->result.bytes, sizeof reply->text - 1);
    memcpy(reply->text, reply->result.data, length);
    reply->text[length] = 0;
    reply->written_undefined = 1;
  } else if (expected.function != 0) {
    g_backend->note_local(expected, now_ns() - start);
  }
  return result;
}

// Where the server cannot execute it, the call is executed here, unless it must not be.
int call_there(const farside_offload_request& request, const Expected& expected, farside_offload_reply* reply) {
  bool may_repeat = false;
  int result = g_backend->call(request, expected, reply, &may_repeat);
  if (result < 0 && may_repeat && request.mode == FARSIDE_OFFLOAD_AUTOMATIC) return call_here(request, expected, reply);
  return result;
}

void join_thread(const farside_offload_task& task) {
  fiber_hold hold;
  pthread_join(task.thread, nullptr);
}

void* run(void* argument) {
  auto* task = static_cast<farside_offload_task*>(argument);
  task->result = call_there(*task->request, task->expected, task->reply);
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(task->done, &one, sizeof one);
  return nullptr;
}

// Without a thread, the call is executed in the wait for it. libc creates and joins threads under a lock of its own: a
// fiber that was suspended there by a fault would keep it from the worker that has to resume the fiber.
void start_thread(farside_offload_task* task) {
  fiber_hold hold;
  task->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (task->done < 0) return;
  if (pthread_create(&task->thread, nullptr, run, task) == 0) return;
  close(task->done);
  task->done = -1;
}

int start(const farside_offload_request& request, farside_offload_reply* reply, int where, const Expected& expected,
          farside_offload_task** task) {
  auto* made = new (std::nothrow) farside_offload_task{&request, reply, expected};
  if (!made) return fail(reply, -ENOMEM, "no memory for a call");
  made->result = where;
  if (where > 0) start_thread(made);
  *task = made;
  return 0;
}

int finish(farside_offload_task* task) {
  std::unique_ptr<farside_offload_task> owned(task);
  bool has_thread = task->done >= 0;
  if (!has_thread && task->result > 0) return call_there(*task->request, task->expected, task->reply);
  if (!has_thread) return task->result < 0 ? task->result : call_here(*task->request, task->expected, task->reply);
  if (farside_fiber_self()) farside_fiber_wait_ready(task->done, FARSIDE_FIBER_READABLE);
  join_thread(*task);
  if (farside_fiber_self()) farside_fiber_close(std::exchange(task->done, -1));
  return task->result;
}

}  // namespace

void set_backend(Backend* backend) { g_backend = backend; }

int fail(farside_offload_reply* reply, int error, const char* text) {
  size_t length = std::min(strlen(text), sizeof reply->text - 1);
  memcpy(reply->text, text, length);
  reply->text[length] = 0;
  return error;
}

}  // namespace farside::offload

extern "C" {

using namespace farside::offload;

FARSIDE_PUBLIC int farside_offload_call(const farside_offload_request* request, farside_offload_reply* reply) {
  Expected expected;
  int where = choose(*request, reply, &expected);
  if (where < 0) return where;
  if (where == 0) return call_here(*request, expected, reply);
  if (!farside_fiber_self()) return call_there(*request, expected, reply);
  farside_offload_task* task = nullptr;
  if (int error = start(*request, reply, where, expected, &task)) return error;
  return finish(task);
}

FARSIDE_PUBLIC int farside_offload_start(const farside_offload_request* request, farside_offload_reply* reply,
                                         farside_offload_task** task) {
  Expected expected;
  int where = choose(*request, reply, &expected);
  return start(*request, reply, where, expected, task);
}

FARSIDE_PUBLIC int farside_offload_finish(farside_offload_task* task) { return finish(task); }

FARSIDE_PUBLIC int farside_offload_servers(void) { return g_backend ? g_backend->servers() : 0; }

FARSIDE_PUBLIC int farside_offload_place(const void* address, size_t bytes, size_t* same_bytes) {
  *same_bytes = bytes;
  return g_backend ? g_backend->place(reinterpret_cast<uint64_t>(address), bytes, same_bytes) : -1;
}
}
