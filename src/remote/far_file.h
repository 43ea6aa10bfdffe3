// The file or block device in which a run stores far memory, with the space that its processes share. Ordinary code.
//
// The file is created with mode 0600 and has no name from then on, so that others cannot open it, and its room is
// free when the last process of the run has ended, however that happens. A block device is opened exclusively.
#pragma once
#include <memory>
#include <string>

#include "base/status.h"
#include "remote/address.h"
#include "transport/file/slot_file.h"

namespace farside::remote {

class FarFile {
 public:
  static Result<std::unique_ptr<FarFile>> create(const Address& address);
  // Whether a device has no data: file systems, partition tables, LVM, RAID, LUKS and swap leave a mark at its begin.
  static bool is_unused(int fd);
  ~FarFile();  // overwrites the content if the address has keep=wipe
  FarFile(const FarFile&) = delete;
  FarFile& operator=(const FarFile&) = delete;

  transport::SlotFile& space() { return *space_; }
  // Makes both descriptors inheritable, and returns the token that names them (abi/run_block.h).
  std::string hand_over();
  // Processes that use it.
  unsigned users() { return space_->regions_in_use(); }
  bool is_wiped() const { return settings_.wipe; }

 private:
  explicit FarFile(const Address& address) : settings_(address.file), name_(address.endpoint.name) {}
  Status open();
  Status open_device();
  Status open_file();
  Status size_file();
  Status error(const char* action, int error) const;
  void wipe();

  const FileSettings settings_;
  const std::string name_;
  int fd_ = -1;
  bool is_device_ = false;
  uint64_t lent_ = 0, file_bytes_ = 0;
  std::unique_ptr<transport::SlotFile> space_;
};

}  // namespace farside::remote
