// For tests of the pager without a server: a store whose memory is in this process, and a SIGBUS handler.
#pragma once
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstring>
#include <memory>

#include "base/log.h"
#include "fiber/wait.h"
#include "pager/handler.h"
#include "pager/pager.h"

namespace farside::pager {

class LocalChannel : public transport::Channel {
 public:
  LocalChannel(std::byte* far, bool direct) : far_(far), direct_(direct) {}
  int submit_read(std::span<const transport::ByteRange> ranges, transport::Token* token) override {
    for (const auto& s : ranges) memcpy(s.near, far_ + s.far, s.bytes);
    *token = 1;
    return 0;
  }
  int submit_write(std::span<const transport::ByteRange> ranges, int pipe, transport::Token* token) override {
    for (const auto& s : ranges) {
      if (pipe < 0) memcpy(far_ + s.far, s.near, s.bytes);
      else if (os::read(pipe, far_ + s.far, s.bytes) != static_cast<ssize_t>(s.bytes)) return -EIO;
    }
    *token = 1;
    return 0;
  }
  int submit_discard(std::span<const transport::ByteRange> ranges, transport::Token* token) override {
    for (const auto& s : ranges) memset(far_ + s.far, 0xdd, s.bytes);  // a discarded page must never be read again
    *token = 1;
    return 0;
  }
  int poll(transport::Token) override { return 1; }
  int wait(transport::Token, uint64_t) override { return 0; }
  transport::Mapping mapping() const override {
    return direct_ ? transport::Mapping{far_, true} : transport::Mapping{};
  }
  bool proceeds_alone() const override { return !direct_; }

 private:
  std::byte* far_;
  bool direct_;
};

class LocalStore : public remote::RemoteStore {
 public:
  LocalStore(uint64_t bytes, uint64_t capacity, bool direct)
      : bytes_(bytes), capacity_(capacity), direct_(direct), far_(static_cast<std::byte*>(os::map_near(bytes))) {}
  ~LocalStore() override { os::unmap(far_, bytes_); }
  transport::Channel* open_channel(Status*) override { return new LocalChannel(far_, direct_); }
  void close_channel(transport::Channel* channel) override { delete channel; }
  Status grow(uint64_t bytes) override {
    if (reserved_ + bytes > capacity_) return Status::error(ENOMEM, "far memory is full");
    reserved_ += bytes;
    return {};
  }
  void shrink(uint64_t bytes) override { reserved_ -= bytes; }
  Result<remote::ForkTicket> prepare_fork() override { return Status::error(ENOTSUP, "no snapshots in this store"); }
  void forked_in_parent(remote::ForkTicket) override {}
  Status adopt_in_child(remote::ForkTicket) override { return Status::error(ENOTSUP, "no snapshots in this store"); }
  const char* address() const override { return "local"; }
  const char* transport_name() const override { return "local"; }
  bool owns_fd(int) const override { return false; }
  uint64_t reserved() const { return reserved_; }
  const std::byte* memory() const { return far_; }

 private:
  uint64_t bytes_, capacity_, reserved_ = 0;
  bool direct_;
  std::byte* far_;
};

// A pager in this process, with faults delivered by signal or by handler thread.
class PagerFixture {
 public:
  PagerFixture(Options options, remote::RemoteStore* store, Delivery delivery) : store_(store) {
    auto created = Pager::create(options, store, delivery);
    if (!created.ok()) die("{}", created.status().text());
    pager_ = std::move(*created);
    s_pager = pager_.get();
    struct sigaction action = {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO;
    sigfillset(&action.sa_mask);
    sigdelset(&action.sa_mask, SIGBUS);
    sigaction(SIGBUS, &action, &old_);
    fibers::set_hooks({nullptr, [] { s_pager->paging().detach_thread(); }, [] { s_pager->paging().poll_reads(); }});
    pager_->start_threads();
    if (delivery == Delivery::kSignal) return;
    handler_ = std::make_unique<FaultHandler>(*pager_);
    Status started = handler_->start();
    if (!started.ok()) die("{}", started.text());
  }
  ~PagerFixture() {
    fibers::set_hooks({});
    handler_.reset();
    sigaction(SIGBUS, &old_, nullptr);
    pager_.reset();
  }
  Pager& operator*() { return *pager_; }
  Pager* operator->() { return pager_.get(); }

  std::byte* allocate(size_t bytes) {
    std::byte* memory = pager_->addresses().reserve(bytes, kPageSize);
    Status s = pager_->addresses().commit(memory, bytes);
    if (!s.ok()) die("{}", s.text());
    return memory;
  }
  void free(std::byte* memory, size_t bytes) {
    pager_->addresses().decommit(memory, bytes);
    pager_->addresses().release(memory, bytes);
  }

 private:
  static void on_sigbus(int, siginfo_t* info, void* context) {
    auto address = reinterpret_cast<uint64_t>(info->si_addr);
#if defined(__x86_64__)
    bool write = (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    bool write = true;
#endif
    if (!s_pager->table().contains(address)) die("SIGBUS at {:#x}, outside far space", address);
    os::SignalSet mask;
    memcpy(&mask, &static_cast<ucontext_t*>(context)->uc_sigmask, sizeof mask);
    if (s_pager->paging().fault(address, write, fibers::in_fiber(mask)) == FaultOutcome::kNotMapped)
      die("access to {:#x}, which is not mapped", address);
  }
  static inline Pager* s_pager = nullptr;
  std::unique_ptr<remote::RemoteStore> store_;
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<FaultHandler> handler_;
  struct sigaction old_ = {};
};

}  // namespace farside::pager
