// Far memory in a file or on a block device of this machine. The processes of a run share the file (far_file.h) and
// transfer pages themselves. Thread-safe; open_channel may be called during a fault.
#pragma once
#include "remote/far_file.h"
#include "remote/remote_store.h"
#include "transport/file/file_channel.h"

namespace farside::remote {

class FileStore final : public RemoteStore {
 public:
  // The file of the run if config.token names its descriptors (FarFile::hand_over); else one of this process alone.
  static Result<std::unique_ptr<FileStore>> connect(const Address& address, const StoreConfig& config);
  ~FileStore() override;

  transport::Channel* open_channel(Status* status) override;
  void close_channel(transport::Channel* channel) override { delete channel; }
  Status grow(uint64_t bytes) override;
  void shrink(uint64_t bytes) override { space_->unreserve(*region_, bytes); }
  Result<ForkTicket> prepare_fork() override;
  void forked_in_parent(ForkTicket) override {}  // the next fork finds out whether the child has adopted its region
  Status adopt_in_child(ForkTicket ticket) override;
  const char* address() const override { return address_.endpoint.name; }
  const char* transport_name() const override { return "file"; }
  bool owns_fd(int fd) const override { return fd == space_->file_fd() || fd == space_->space_fd(); }

 private:
  FileStore(const Address& address, const StoreConfig& config) : address_(address), failures_(config.on_failure) {}
  Status find_space(const char* token);

  const Address address_;
  transport::FailureReport failures_;
  std::unique_ptr<FarFile> own_file_;               // null where the file is that of the run
  std::unique_ptr<transport::SlotFile> run_space_;  // null where it is not
  transport::SlotFile* space_ = nullptr;
  std::unique_ptr<transport::FarRegion> region_;
};

}  // namespace farside::remote
