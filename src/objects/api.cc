#include "objects/api.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

#define FARSIDE_PUBLIC __attribute__((visibility("default")))

using farside::objects::ObjectSpace;
using farside::objects::ScopeRecord;

namespace farside::objects {
namespace {

// The inline dereference decodes an owner as PtrWord does; a line has 64 bytes.
static_assert(FARSIDE_OWNER_ADDRESS_SHIFT_ == PtrWord::kAddressShift);
static_assert(FARSIDE_OWNER_LINE_SHIFT_ == PtrWord::kAddressShift + 6);

pager::Pager* g_pager = nullptr;
Paths g_paths;
double g_page_share;
Epochs g_epochs;  // scopes may begin before the first object is created
std::atomic<ObjectSpace*> g_space{nullptr};
Evacuator* g_evacuator = nullptr;
Mutex g_starting;  // guards the creation of g_space and g_evacuator

ObjectSpace* start() {
  SignalsBlocked blocked;
  LockGuard guard(g_starting);
  if (ObjectSpace* existing = g_space.load()) return existing;
  auto* space = new ObjectSpace(*g_pager, g_paths, g_page_share, g_epochs);
  g_evacuator = new Evacuator(*space);
  g_pager->evictors().set_observer(g_evacuator);
  if (int error = g_evacuator->start()) die("cannot start the evacuator's thread (error {})", error);
  g_space.store(space, std::memory_order_release);
  return space;
}

ObjectSpace& space() {
  ObjectSpace* existing = g_space.load(std::memory_order_acquire);
  return existing ? *existing : *start();
}

}  // namespace

void enable_objects(pager::Pager* pager, Paths paths, double page_share) {
  g_pager = pager;
  g_paths = paths;
  g_page_share = page_share;
}

void disable_objects() {
  if (g_pager) g_pager->evictors().set_observer(nullptr);
  delete g_evacuator;
  g_evacuator = nullptr;
  delete g_space.exchange(nullptr);
  g_pager = nullptr;
  farside_object_view = {0, 0};
}

void forget_thread() {
  if (ObjectSpace* s = g_space.load(std::memory_order_acquire)) s->detach_thread();
}

void drop_scopes(farside_scopes* scopes) {
  auto& record = static_cast<ScopeRecord&>(*scopes);
  permit_moves(std::exchange(record.stopped, 0));
  Epochs::detach(&record);
}

int stop_moves(uint64_t structures) { return structures == 0 ? 0 : space().stop_moves(structures); }
uint64_t stopped_here() { return farside_scopes_here ? Epochs::here().stopped : 0; }
void permit_moves(uint64_t structures) {
  if (structures != 0) space().permit_moves(structures);
}
ssize_t list_memory(uint64_t structures, std::span<std::span<std::byte>> out) {
  return space().list_memory(structures, out);
}

void before_fork() {
  if (ObjectSpace* s = g_space.load(std::memory_order_acquire)) s->before_fork();
}

void after_fork_in_parent() {
  if (ObjectSpace* s = g_space.load(std::memory_order_acquire)) s->after_fork();
}

void after_fork_in_child() {
  ObjectSpace* s = g_space.load(std::memory_order_acquire);
  if (!s) return;
  s->after_fork();
  s->reset_in_child();
}

void start_threads_in_child() {
  if (!g_space.load(std::memory_order_acquire)) return;
  if (int error = g_evacuator->start()) die("cannot start the evacuator's thread (error {})", error);
}

}  // namespace farside::objects

using farside::objects::space;

extern "C" {

FARSIDE_PUBLIC uint64_t farside_epoch = 1;
FARSIDE_PUBLIC struct farside_object_view farside_object_view = {0, 0};

FARSIDE_PUBLIC farside_scopes* farside_scopes_attach() {
  return farside_scopes_here = farside::objects::g_epochs.attach();
}

FARSIDE_PUBLIC void farside_scopes_release(farside_scopes* scopes) {
  space().release_held(static_cast<ScopeRecord&>(*scopes));
}

FARSIDE_PUBLIC int farside_object_new(uint64_t* owner, farside_object_type* type, unsigned options, void** object) {
  return space().make(owner, type, options, object);
}

FARSIDE_PUBLIC void farside_object_delete(uint64_t* owner) { space().destroy(owner); }

FARSIDE_PUBLIC void farside_object_move(uint64_t* to, uint64_t* from) { space().move(to, from); }

FARSIDE_PUBLIC void* farside_object_deref_slow(uint64_t* owner, farside_object_type* type, unsigned options) {
  return space().deref(owner, type, options);
}

FARSIDE_PUBLIC void farside_object_prefetch(uint64_t* owners, size_t count, farside_object_type* type) {
  space().prefetch(owners, count, *type);
}

FARSIDE_PUBLIC int farside_structure_create(const struct farside_structure_options* options) {
  return space().create(*options);
}

FARSIDE_PUBLIC ssize_t farside_structure_take_evicted(unsigned structure, uint64_t** owners, size_t max) {
  return space().take_evicted(structure, {owners, max});
}

FARSIDE_PUBLIC int farside_structure_on_evict(unsigned structure, farside_eviction_handler* handler, void* context) {
  return space().set_handler(structure, handler, context);
}

FARSIDE_PUBLIC int farside_object_stop_moves(uint64_t structures, uint64_t* stopped) {
  return space().stop_moves_here(structures, stopped);
}

FARSIDE_PUBLIC void farside_object_permit_moves(uint64_t stopped) { space().permit_moves_here(stopped); }

FARSIDE_PUBLIC int farside_get_object_stats(struct farside_object_stats* stats) {
  memset(stats, 0, sizeof *stats);
  if (!farside::objects::g_pager) return -ENOSYS;
  if (ObjectSpace* s = farside::objects::g_space.load(std::memory_order_acquire)) *stats = s->stats();
  return 0;
}
}
