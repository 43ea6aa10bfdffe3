// Misuses far objects, in the way that the argument names. FARSIDE_CHECK_SCOPES=1 must detect it. Without an argument:
// correct uses only.
#include <cstdio>
#include <cstring>
#include <thread>

#include "farside/fiber.hpp"
#include "farside/ptr.hpp"

struct Object {
  long words[3];
};

static volatile long sink;

static const Object* leave_scope(const farside::unique_ptr<Object>& p) {
  farside::deref_scope scope;
  return p.deref(scope);
}

// Correct uses that resemble misuse: nested scopes, scopes of other threads and fibers, moves, the last byte.
static long use_well(farside::unique_ptr<Object>& p) {
  farside::deref_scope outer;
  Object* object = p.deref_mut(outer);
  sink = leave_scope(p)->words[0];
  std::thread([&] { sink = p.load().words[0]; }).join();
  farside::unique_ptr<Object> moved = std::move(p);
  object->words[2] = 5;
  reinterpret_cast<char*>(object)[sizeof(Object) - 1] = 0;
  p = std::move(moved);
  farside::run_fibers(1, [&] {
    farside::fiber a([&] {
      farside::deref_scope scope;
      Object* here = p.deref_mut(scope);
      farside::this_fiber::yield();
      here->words[1] = 7;
    });
    farside::fiber b([&] { sink = p.load().words[0]; });
  });
  return object->words[2] + object->words[1];
}

int main(int argc, char** argv) {
  auto is = [&](const char* misuse) { return argc > 1 && strcmp(argv[1], misuse) == 0; };
  auto p = farside::make_unique<Object>(Object{{1, 2, 3}});
  if (is("after")) sink = leave_scope(p)->words[0];
  if (is("const")) {
    farside::deref_scope scope;
    const_cast<Object*>(p.deref(scope))->words[0] = 9;
  }
  if (is("destroyed")) {
    farside::deref_scope scope;
    const Object* object = p.deref(scope);
    p = nullptr;
    sink = object->words[0];
  }
  if (is("beyond")) {
    auto next = farside::make_unique<Object>();
    farside::deref_scope scope;
    sink = *(&p.deref(scope)->words[0] + 3);
  }
  long sum = is("destroyed") ? 0 : use_well(p);
  printf("sum %ld\n", sum);
}
