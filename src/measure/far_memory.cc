#include "measure/far_memory.h"

#include <signal.h>
#include <ucontext.h>

#include <cstring>

#include "base/log.h"
#include "fiber/wait.h"
#include "remote/connect.h"

namespace farside {
namespace {

// The pager that the SIGBUS handler uses. It is global because handlers have no argument.
std::atomic<pager::Pager*> g_pager{nullptr};

bool is_write_fault([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWriteBit = 2;
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
#else
  return true;  // a clean page may become dirty, which costs only a write-back
#endif
}

void on_sigbus(int, siginfo_t* info, void* context) {
  int saved = errno;
  auto address = reinterpret_cast<uint64_t>(info->si_addr);
  pager::Pager* pager = g_pager.load(std::memory_order_relaxed);
  os::SignalSet mask;
  memcpy(&mask, &static_cast<ucontext_t*>(context)->uc_sigmask, sizeof mask);
  bool in_fiber = fibers::in_fiber(mask);
  if (in_fiber) os::sigprocmask(SIG_BLOCK, &SignalsBlocked::kAllButFaults, nullptr);
  if (info->si_code <= 0 || !pager || !pager->table().contains(address) ||
      pager->paging().fault(address, is_write_fault(context), in_fiber) == pager::FaultOutcome::kNotMapped) {
    die("SIGBUS at {:#x}, where no far memory is mapped", address);
  }
  errno = saved;
}

// As in preload/guard/signals/signals.cc, SA_NODEFER leaves the mask alone, which saves two acquisitions of the
// process's signal lock per fault. The handlers of this process touch no far memory, so a fault cannot nest.
struct sigaction catch_sigbus() {
  struct sigaction action = {}, old = {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, &old);
  return old;
}

}  // namespace

Result<std::unique_ptr<FarMemory>> FarMemory::create(const FarMemoryConfig& config) {
  std::unique_ptr<FarMemory> made(new FarMemory);
  Status opened = made->open(config);
  if (!opened.ok()) return opened;
  return made;
}

Status FarMemory::open(const FarMemoryConfig& config) {
  Options options;
  options.local = {config.local, 0};
  options.evictors = config.evictors;
  options.writeback = config.writeback;
  options.huge = config.huge;
  options.space = align_up(config.bytes, remote::kSlabBytes) + align_up(config.more_bytes, remote::kSlabBytes) +
                  8 * remote::kSlabBytes;
  old_ = catch_sigbus();
  auto store = remote::connect_store({.address = config.address.c_str(),
                                      .token = config.token.c_str(),
                                      .region_bytes = options.space,
                                      .replicas = config.replicas,
                                      .relays = {.ucx = config.ucx_relay.c_str()}});
  if (!store.ok()) return store.status();
  store_ = std::move(*store);
  auto created = pager::Pager::create(options, store_.get(), config.delivery);
  if (!created.ok()) return created.status();
  pager_ = std::move(*created);
  g_pager = pager_.get();
  fibers::set_hooks({nullptr, [] { g_pager.load()->paging().detach_thread(); },
                     [] { g_pager.load()->paging().poll_reads(); }, nullptr});
  config.opened(*pager_);
  closing_ = config.closing;
  pager_->start_threads();
  if (config.delivery == pager::Delivery::kMessages) {
    Status started = start_handler();
    if (!started.ok()) return started;
  }
  bytes_ = align_up(config.bytes, kPageSize);
  if (bytes_ == 0) return {};
  memory_ = pager_->addresses().reserve(bytes_, kPageSize);
  if (!memory_) return Status::error(ENOMEM, "no addresses for {} bytes of far memory", bytes_);
  return pager_->addresses().commit(memory_, bytes_);
}

Status FarMemory::start_handler() {
  handler_ = std::make_unique<pager::FaultHandler>(*pager_);
  return handler_->start();
}

FarMemory::~FarMemory() {
  handler_.reset();
  closing_();
  fibers::set_hooks({});
  g_pager = nullptr;
  pager_.reset();
  store_.reset();
  sigaction(SIGBUS, &old_, nullptr);
}

Arena FarMemory::arena() const {
  return {memory_, bytes_ / kPageSize, [pager = pager_.get()] { pager->paging().detach_thread(); }};
}

}  // namespace farside
