// Far objects in a program that does not run under Farside: ordinary memory, with the same owners. All access bits are
// set (farside_object_view), so a dereference is the inline part only. With FARSIDE_CHECK_SCOPES=1 none is set, and
// every dereference reaches scope_check. Under `farside run` the symbols of src/objects/api.cc are found first.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cerrno>

#include "farside/object.h"
#include "fiber/wait.h"
#include "libfarside/scope_check.h"

#define FARSIDE_PUBLIC __attribute__((visibility("default")))

namespace {

constexpr unsigned kAddressShift = FARSIDE_OWNER_ADDRESS_SHIFT_;
constexpr size_t kMaxAlignment = 64;
alignas(64) const uint64_t kAllAccess[2] = {~uint64_t{0}, ~uint64_t{0}}, kNoAccess[2] = {};

namespace scope_check = farside::scope_check;
using scope_check::CheckedScopes;

// Its destructor deletes a thread's scopes when the thread ends.
pthread_key_t g_key;
pthread_once_t g_once = PTHREAD_ONCE_INIT;

void make_key() {
  pthread_key_create(&g_key, [](void* scopes) {
    farside_scopes_here = nullptr;
    delete static_cast<CheckedScopes*>(scopes);
  });
  farside::fibers::Hooks hooks;
  hooks.drop_scopes = [](farside_scopes* scopes) { delete static_cast<CheckedScopes*>(scopes); };
  farside::fibers::set_hooks(hooks);
}

// Clears the access bits if scopes are checked. Under Farside the view is that of the preload library and is left
// alone.
__attribute__((constructor)) void withhold_access() {
  uintptr_t& access_bits = farside_object_view.access_bits;
  bool is_own = access_bits == reinterpret_cast<uintptr_t>(kAllAccess);
  if (is_own && scope_check::enabled()) access_bits = reinterpret_cast<uintptr_t>(kNoAccess);
}

}  // namespace

extern "C" {

FARSIDE_PUBLIC uint64_t farside_epoch = 1;
FARSIDE_PUBLIC struct farside_object_view farside_object_view = {reinterpret_cast<uintptr_t>(kAllAccess), 0};

FARSIDE_PUBLIC farside_scopes* farside_scopes_attach() {
  pthread_once(&g_once, make_key);
  auto* scopes = new CheckedScopes();
  if (!farside::fibers::in_fiber()) pthread_setspecific(g_key, scopes);
  return farside_scopes_here = scopes;
}

FARSIDE_PUBLIC void farside_scopes_release(farside_scopes* scopes) {
  scope_check::release(*static_cast<CheckedScopes*>(scopes));
}

FARSIDE_PUBLIC int farside_object_new(uint64_t* owner, farside_object_type* type, unsigned, void** object) {
  if (type->alignment > kMaxAlignment) return -EINVAL;
  if (scope_check::enabled()) {
    *object = scope_check::make(owner, *type);
    return 0;
  }
  size_t alignment = type->alignment < 16 ? 16 : type->alignment;
  void* memory = aligned_alloc(alignment, (type->bytes + alignment - 1) / alignment * alignment);
  if (!memory) return -ENOMEM;
  *owner = reinterpret_cast<uint64_t>(memory) << kAddressShift;
  *object = memory;
  return 0;
}

FARSIDE_PUBLIC void farside_object_delete(uint64_t* owner) {
  if (scope_check::enabled()) return scope_check::destroy(owner);
  free(reinterpret_cast<void*>(*owner >> kAddressShift));
  *owner = 0;
}

FARSIDE_PUBLIC void farside_object_move(uint64_t* to, uint64_t* from) {
  *to = *from;
  *from = 0;
}

FARSIDE_PUBLIC void* farside_object_deref_slow(uint64_t* owner, farside_object_type*, unsigned options) {
  if (scope_check::enabled()) return scope_check::deref(owner, (options & FARSIDE_OBJECT_WRITE) != 0);
  return reinterpret_cast<void*>(*owner >> kAddressShift);
}

FARSIDE_PUBLIC void farside_object_prefetch(uint64_t*, size_t, farside_object_type*) {}

static unsigned structures = 0;

FARSIDE_PUBLIC int farside_structure_create(const farside_structure_options* options) {
  constexpr unsigned kMaxStructures = 63;
  if (options->capacity == 0) return -EINVAL;
  if (__atomic_load_n(&structures, __ATOMIC_RELAXED) >= kMaxStructures) return -ENOSPC;
  return static_cast<int>(__atomic_add_fetch(&structures, 1, __ATOMIC_RELAXED));
}

FARSIDE_PUBLIC ssize_t farside_structure_take_evicted(unsigned, uint64_t**, size_t) { return 0; }

// No object leaves.
FARSIDE_PUBLIC int farside_structure_on_evict(unsigned structure, farside_eviction_handler*, void*) {
  return structure == 0 || structure > __atomic_load_n(&structures, __ATOMIC_RELAXED) ? -EINVAL : 0;
}

FARSIDE_PUBLIC int farside_object_stop_moves(uint64_t, uint64_t* stopped) {
  *stopped = 0;
  return farside_scopes_here && farside_scopes_here->depth > 0 ? -EDEADLK : 0;
}

FARSIDE_PUBLIC void farside_object_permit_moves(uint64_t) {}

FARSIDE_PUBLIC int farside_get_object_stats(farside_object_stats* stats) {
  memset(stats, 0, sizeof *stats);
  return -ENOSYS;
}
}
