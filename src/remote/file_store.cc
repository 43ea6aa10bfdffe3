#include "remote/file_store.h"

#include "abi/run_block.h"

namespace farside::remote {

Result<std::unique_ptr<FileStore>> FileStore::connect(const Address& address, const StoreConfig& config) {
  std::unique_ptr<FileStore> store(new FileStore(address, config));
  if (Status found = store->find_space(config.token); !found.ok()) return found;
  Status status;
  store->region_ = store->space_->add_region(config.region_bytes, &status);
  if (!store->region_) return status;
  return store;
}

Status FileStore::find_space(const char* token) {
  FarFileFds fds;
  if (token && parse_far_file_fds(token, &fds)) {
    auto space = transport::SlotFile::attach(fds.file, fds.space);
    if (!space.ok()) return space.status();
    run_space_ = std::move(*space);
    space_ = run_space_.get();
    return {};
  }
  auto file = FarFile::create(address_);
  if (!file.ok()) return file.status();
  own_file_ = std::move(*file);
  space_ = &own_file_->space();
  return {};
}

FileStore::~FileStore() {
  if (region_) space_->remove_region(std::move(region_));
}

transport::Channel* FileStore::open_channel(Status* status) {
  if (region_) return new transport::FileChannel({space_, region_.get(), &failures_, address()});
  *status = Status::error(ECONNRESET, "this forked process has no snapshot of its parent's far memory");
  return nullptr;
}

Status FileStore::grow(uint64_t bytes) {
  int r = region_ ? space_->reserve(*region_, bytes) : -ENOMEM;
  if (r == 0) return {};
  if (r == -ENOSPC || r == -EDQUOT)
    return Status::error(ENOMEM, "far memory is full: the file system of {} has no room for {} more bytes", address(),
                         bytes);
  if (r != -ENOMEM) return Status::error(-r, "the far file {} cannot be allocated (error {})", address(), -r);
  return Status::error(ENOMEM, "far memory is full: {} lends {} bytes; give it a larger size", address(),
                       space_->lent_bytes());
}

Result<ForkTicket> FileStore::prepare_fork() {
  int id = region_ ? space_->copy_region(*region_) : -ECONNRESET;
  if (id < 0)
    return Status::error(-id, "the far file {} has no room for the table of one more process (error {})", address(),
                         -id);
  ForkTicket ticket;
  ticket.of[0].fd = space_->space_fd();
  ticket.of[0].region = static_cast<uint64_t>(id);
  return ticket;
}

// The parent's map stays mapped in the parent only.
Status FileStore::adopt_in_child(ForkTicket ticket) {
  Status status;
  region_.reset();
  if (!ticket.valid())
    return Status::error(ECONNRESET, "this forked process has no snapshot of its parent's far memory");
  region_ = space_->adopt_region(static_cast<unsigned>(ticket.of[0].region), &status);
  return status;
}

}  // namespace farside::remote
