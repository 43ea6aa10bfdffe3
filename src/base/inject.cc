#include "base/inject.h"

#ifdef FARSIDE_EXPENSIVE_CHECKS
#include <atomic>
#include <cstring>

namespace farside::inject {
namespace {
struct Point {
  const char* name = nullptr;
  std::atomic<uint64_t> every{0};
  void (*action)(void*) = nullptr;
  void* context = nullptr;
  std::atomic<uint64_t> calls{0};
};
constexpr int kMaxPoints = 32;
Point g_points[kMaxPoints];
std::atomic<int> g_count{0};

Point* find(const char* name) {
  int count = g_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; i++) {
    if (strcmp(g_points[i].name, name) == 0) return &g_points[i];
  }
  return nullptr;
}

Point* find_or_add(const char* name) {
  if (Point* p = find(name)) return p;
  int index = g_count.load();
  if (index == kMaxPoints) return nullptr;
  g_points[index].name = name;
  g_count.store(index + 1, std::memory_order_release);
  return &g_points[index];
}
}  // namespace

bool fails(const char* point) {
  Point* p = find(point);
  uint64_t every = p ? p->every.load(std::memory_order_relaxed) : 0;
  return every != 0 && p->calls.fetch_add(1) % every == every - 1;
}

void pause(const char* point) {
  Point* p = find(point);
  if (p && p->action) p->action(p->context);
}

void arm_failure(const char* point, uint64_t every) {
  if (Point* p = find_or_add(point)) p->every.store(every, std::memory_order_relaxed);
}
void arm_pause(const char* point, void (*action)(void*), void* context) {
  Point* p = find_or_add(point);
  if (!p) return;
  p->context = context;
  p->action = action;
}
}  // namespace farside::inject
#endif
