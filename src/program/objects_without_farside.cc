// Far objects of a program that does not run under Farside: ordinary memory, reached through the same words. All
// licences are there (farside_object_view), so a deref is the inline part only.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cerrno>

#include "farside/object.h"
#include "fiber/wait.h"

#define FARSIDE_PUBLIC __attribute__((visibility("default")))

namespace {

constexpr unsigned kAddressShift = 16;
alignas(64) const uint64_t kAllLicences[2] = {~uint64_t{0}, ~uint64_t{0}};

// Ends a thread's record with the thread.
pthread_key_t g_key;
pthread_once_t g_once = PTHREAD_ONCE_INIT;

void make_key() {
  pthread_key_create(&g_key, [](void* scopes) {
    farside_scopes_here = nullptr;
    free(scopes);
  });
  farside::fiber::Hooks hooks;
  hooks.drop_scopes = [](farside_scopes* scopes) { free(scopes); };
  farside::fiber::set_hooks(hooks);
}

}  // namespace

extern "C" {

FARSIDE_PUBLIC uint64_t farside_epoch = 1;
FARSIDE_PUBLIC struct farside_object_view farside_object_view = {reinterpret_cast<uintptr_t>(kAllLicences), 0};

FARSIDE_PUBLIC farside_scopes* farside_scopes_attach() {
  pthread_once(&g_once, make_key);
  auto* scopes = static_cast<farside_scopes*>(calloc(1, sizeof(farside_scopes)));
  if (!scopes) abort();
  if (!farside::fiber::in_fiber()) pthread_setspecific(g_key, scopes);
  return farside_scopes_here = scopes;
}

FARSIDE_PUBLIC void farside_scopes_release(farside_scopes*) {}

FARSIDE_PUBLIC void* farside_object_new(uint64_t* owner, farside_object_type* type, unsigned) {
  size_t alignment = type->alignment < 16 ? 16 : type->alignment;
  if (alignment > 64) {
    errno = EINVAL;
    return nullptr;
  }
  void* object = aligned_alloc(alignment, (type->bytes + alignment - 1) / alignment * alignment);
  if (object) *owner = reinterpret_cast<uint64_t>(object) << kAddressShift;
  return object;
}

FARSIDE_PUBLIC void farside_object_delete(uint64_t* owner) {
  free(reinterpret_cast<void*>(*owner >> kAddressShift));
  *owner = 0;
}

FARSIDE_PUBLIC void farside_object_move(uint64_t* to, uint64_t* from) {
  *to = *from;
  *from = 0;
}

FARSIDE_PUBLIC void* farside_object_deref_slow(uint64_t* owner, farside_object_type*, unsigned) {
  return reinterpret_cast<void*>(*owner >> kAddressShift);
}

FARSIDE_PUBLIC void farside_object_prefetch(uint64_t*, size_t, farside_object_type*) {}

FARSIDE_PUBLIC int farside_get_object_stats(farside_object_stats* stats) {
  memset(stats, 0, sizeof *stats);
  return 0;
}
}
