#include "transport/file/slot_file.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/os.h"
#include "base/random.h"

namespace farside::transport {
namespace {

constexpr uint64_t kMagic = 0x3165636170732d66;  // "f-space1"
constexpr uint64_t kReferencesAt = kMiB;
constexpr uint64_t kRegionsAt = uint64_t{1} << 40;
constexpr uint64_t kRegionStride = uint64_t{1} << 36;
constexpr SlotNumber kFirstSlot = SlotFile::kHeaderBytes / kPageSize;
constexpr uint64_t kProvideBytes = 64 * kMiB;  // that the file system is asked for at a time
constexpr uint64_t kHandOverNs = 10'000'000'000;

constexpr uint16_t kWriting = 0x8000;
static_assert(SlotFile::kMaxRegions <= kWriting);

// Of a record. kPrepared: a copy for a child that has not adopted it.
enum State : uint32_t { kFree, kClaimed, kInUse, kPrepared };

uint64_t bits_bytes(uint64_t bytes, uint64_t chunk_pages) {
  return align_up((bytes / kPageSize + chunk_pages - 1) / chunk_pages / 8 + 8, kPageSize);
}

Status memory_error(int error) {
  return Status::error(error, "cannot map the table of the far file (error {}); choose a smaller --tune space", error);
}

}  // namespace

struct SlotFile::Header {
  uint64_t magic;
  uint64_t lent_bytes;
  SlotNumber slots;   // of the file, with its header
  uint32_t encrypts;  // 0 or 1
  uint8_t key[XtsCipher::kKeyBytes];
  std::atomic<SlotNumber> provided;   // slots below have room in the file system
  std::atomic<uint32_t> regions_end;  // records from here on were never used
  struct RegionRecord {
    std::atomic<uint32_t> state;
    std::atomic<uint64_t> reserved;
    std::atomic<uint64_t> generation;  // regions that were released here
    uint64_t bytes;
  } records[kMaxRegions];
};

FarRegion::FarRegion(unsigned id, uint64_t bytes, std::byte* base, size_t mapped_bytes,
                     const std::atomic<uint64_t>& generation)
    : id_(id),
      bytes_(bytes),
      base_(base),
      mapped_bytes_(mapped_bytes),
      used_(reinterpret_cast<std::atomic<uint64_t>*>(base)),
      words_(reinterpret_cast<std::atomic<uint64_t>*>(base + bits_bytes(bytes, kChunkPages))),
      generation_(generation),
      made_in_(generation.load()) {}

FarRegion::~FarRegion() { os::munmap(base_, mapped_bytes_); }

uint64_t FarRegion::exchange(uint64_t page, uint64_t word) {
  uint64_t chunk = page / kChunkPages, bit = uint64_t{1} << (chunk % 64);
  if (!(used_[chunk / 64].load(std::memory_order_relaxed) & bit)) used_[chunk / 64].fetch_or(bit);
  return words_[page].exchange(word, std::memory_order_acq_rel);
}

uint64_t SlotFile::spare_bytes(uint64_t lent) {
  return align_up(std::clamp<uint64_t>(lent / 8, 16 * kMiB, 256 * kMiB), kPageSize);
}

Result<std::unique_ptr<SlotFile>> SlotFile::create(int file_fd, const Settings& settings) {
  uint64_t slots = settings.file_bytes / kPageSize;
  if (slots > ~SlotNumber{0}) return Status::error(EFBIG, "a far file has at most 16 TiB");
  int fd = os::memfd_create("farside-space", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Status::error(-fd, "too many open files: no descriptor for the table of the far file");
  std::unique_ptr<SlotFile> space(new SlotFile(file_fd, os::move_fd_high(fd)));
  int r = os::ftruncate(space->space_fd_, static_cast<off_t>(kRegionsAt + kMaxRegions * kRegionStride));
  if (r < 0) return memory_error(-r);
  os::fcntl(space->space_fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  uint64_t magic = kMagic;
  os::call(SYS_pwrite64, space->space_fd_, &magic, sizeof magic, 0);
  auto number_of_slots = static_cast<SlotNumber>(slots);
  os::call(SYS_pwrite64, space->space_fd_, &number_of_slots, sizeof number_of_slots, offsetof(Header, slots));
  uint8_t key[XtsCipher::kKeyBytes];
  fill_random(key, sizeof key);
  os::call(SYS_pwrite64, space->space_fd_, key, sizeof key, offsetof(Header, key));
  uint32_t encrypts = settings.encrypts;
  os::call(SYS_pwrite64, space->space_fd_, &encrypts, sizeof encrypts, offsetof(Header, encrypts));
  if (Status s = space->map(); !s.ok()) return s;
  space->header_->lent_bytes = settings.bytes;
  space->header_->provided = settings.is_allocated ? number_of_slots : kFirstSlot;
  return space;
}

Result<std::unique_ptr<SlotFile>> SlotFile::attach(int file_fd, int space_fd) {
  std::unique_ptr<SlotFile> space(new SlotFile(file_fd, space_fd));
  if (Status s = space->map(); !s.ok()) return s;
  struct flock all = {};
  all.l_type = F_UNLCK;
  os::fcntl(space_fd, F_SETLK, reinterpret_cast<long>(&all));
  return space;
}

Status SlotFile::map() {
  Header at = {};
  long n = os::call(SYS_pread64, space_fd_, &at, offsetof(Header, provided), 0);
  if (n < 0 || at.magic != kMagic)
    return Status::error(EBADF, "the descriptors of the far file, which this run had, were closed");
  mapped_bytes_ = kReferencesAt + align_up(uint64_t{at.slots} * sizeof(uint16_t), kPageSize);
  long r = os::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, space_fd_, 0);
  if (os::is_error(r)) return memory_error(static_cast<int>(-r));
  os::madvise(reinterpret_cast<void*>(r), mapped_bytes_, MADV_DONTDUMP);
  header_ = reinterpret_cast<Header*>(r);
  references_ = reinterpret_cast<std::atomic<uint16_t>*>(r + static_cast<long>(kReferencesAt));
  if (header_->encrypts) cipher_ = std::make_unique<XtsCipher>(header_->key);
  next_ = kFirstSlot;
  return {};
}

SlotFile::~SlotFile() {
  if (header_) os::munmap(header_, mapped_bytes_);
}

uint64_t SlotFile::lent_bytes() const { return header_->lent_bytes; }

uint64_t SlotFile::provided_bytes() const { return header_->provided.load() * uint64_t{kPageSize}; }

// ---- Regions ----

// which: 0: the process that made the region; 1: a child that adopted it.
bool SlotFile::lock(unsigned id, unsigned which, short type) const {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_start = 2 * static_cast<off_t>(id) + which;
  lock.l_len = 1;
  return os::fcntl(space_fd_, F_SETLK, reinterpret_cast<long>(&lock)) == 0;
}

bool SlotFile::is_locked(unsigned id) const {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_start = 2 * static_cast<off_t>(id);
  lock.l_len = 2;
  return os::fcntl(space_fd_, F_GETLK, reinterpret_cast<long>(&lock)) != 0 || lock.l_type != F_UNLCK;
}

std::unique_ptr<FarRegion> SlotFile::map_region(unsigned id, uint64_t bytes, Status* status) const {
  size_t size = bits_bytes(bytes, FarRegion::kChunkPages) + align_up(bytes / kPageSize * sizeof(uint64_t), kPageSize);
  FARSIDE_CHECK(size <= kRegionStride);
  long r = os::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, space_fd_,
                    static_cast<off_t>(kRegionsAt + id * kRegionStride));
  if (os::is_error(r)) {
    *status = memory_error(static_cast<int>(-r));
    return nullptr;
  }
  os::madvise(reinterpret_cast<void*>(r), size, MADV_DONTDUMP);
  return std::unique_ptr<FarRegion>(
      new FarRegion(id, bytes, reinterpret_cast<std::byte*>(r), size, header_->records[id].generation));
}

// A free record, locked by this process; -EMFILE: there is none.
int SlotFile::claim_record(uint64_t bytes) {
  for (unsigned id = 0; id < kMaxRegions; id++) {
    Header::RegionRecord& record = header_->records[id];
    if (record.state.load() != kFree || !lock(id, 0, F_WRLCK)) continue;
    uint32_t expected = kFree;
    if (!record.state.compare_exchange_strong(expected, kClaimed)) {
      lock(id, 0, F_UNLCK);
      continue;
    }
    owned_[id] = true;
    record.bytes = bytes;
    uint32_t end = header_->regions_end.load();
    while (end <= id && !header_->regions_end.compare_exchange_weak(end, id + 1)) {}
    return static_cast<int>(id);
  }
  return -EMFILE;
}

std::unique_ptr<FarRegion> SlotFile::add_region(uint64_t bytes, Status* status) {
  LockGuard hold(regions_lock_);
  release_abandoned();
  int id = claim_record(bytes);
  if (id < 0) {
    *status = Status::error(EMFILE, "more than {} processes of this run use its far file", kMaxRegions);
    return nullptr;
  }
  header_->records[id].state = kInUse;
  return map_region(static_cast<unsigned>(id), bytes, status);
}

void SlotFile::remove_region(std::unique_ptr<FarRegion> region) {
  LockGuard hold(regions_lock_);
  unsigned id = region->id();
  if (!region->is_intact()) return;
  empty(*region);
  region.reset();
  free_record(id);
  owned_[id] = false;
  lock(id, 0, F_UNLCK);
  lock(id, 1, F_UNLCK);
}

int SlotFile::copy_region(const FarRegion& region) {
  LockGuard hold(regions_lock_);
  end_hand_overs();
  int id = handed_over_count_ < kMaxHandedOver ? claim_record(region.bytes()) : -EMFILE;
  if (id < 0) return id;
  Status status;
  std::unique_ptr<FarRegion> copy = map_region(static_cast<unsigned>(id), region.bytes(), &status);
  if (!copy) {
    free_record(static_cast<unsigned>(id));
    return -status.code();
  }
  for (uint64_t page = region.next(0); page < region.pages(); page = region.next(page + 1)) {
    uint64_t word = region.word(page);
    if (word == 0) continue;
    references_[FarRegion::slot_of(word)].fetch_add(1);
    copy->exchange(page, word);
  }
  header_->records[id].state = kPrepared;
  handed_over_[handed_over_count_++] = {static_cast<unsigned>(id), now_ns()};
  return id;
}

// Gives up the locks of copies that their children have adopted, or will never adopt.
void SlotFile::end_hand_overs() {
  unsigned kept = 0;
  for (unsigned i = 0; i < handed_over_count_; i++) {
    HandedOver h = handed_over_[i];
    if (header_->records[h.id].state == kPrepared && now_ns() - h.since_ns < kHandOverNs) {
      handed_over_[kept++] = h;
      continue;
    }
    owned_[h.id] = false;
    lock(h.id, 0, F_UNLCK);
  }
  handed_over_count_ = kept;
}

// The child has no lock of its parent's, and only the forking thread: the mutex may be held by a thread that is gone.
std::unique_ptr<FarRegion> SlotFile::adopt_region(unsigned id, Status* status) {
  new (&regions_lock_) Mutex;
  LockGuard hold(regions_lock_);
  handed_over_count_ = 0;
  owned_.reset();
  Header::RegionRecord& record = header_->records[id];
  uint32_t expected = kPrepared;
  if (lock(id, 1, F_WRLCK) && record.state.compare_exchange_strong(expected, kInUse)) {
    owned_[id] = true;
    return map_region(id, record.bytes, status);
  }
  lock(id, 1, F_UNLCK);
  *status = Status::error(ECONNRESET, "this forked process has no snapshot of its parent's far memory");
  return nullptr;
}

unsigned SlotFile::regions_in_use() {
  LockGuard hold(regions_lock_);
  unsigned count = 0;
  for (unsigned id = 0; id < header_->regions_end; id++) count += owned_[id] || is_locked(id);
  return count;
}

// The regions of processes that have ended. Two processes that do this at the same time exclude each other by the lock.
unsigned SlotFile::release_abandoned() {
  end_hand_overs();
  unsigned count = 0;
  for (unsigned id = 0; id < header_->regions_end; id++) {
    if (header_->records[id].state == kFree || owned_[id] || is_locked(id)) continue;
    bool mine = lock(id, 0, F_WRLCK) && lock(id, 1, F_WRLCK);
    if (mine && header_->records[id].state != kFree) {
      header_->records[id].generation++;  // before its words change
      Status status;
      if (std::unique_ptr<FarRegion> region = map_region(id, header_->records[id].bytes, &status)) empty(*region);
      free_record(id);
      count++;
    }
    lock(id, 0, F_UNLCK);
    lock(id, 1, F_UNLCK);
  }
  return count;
}

bool SlotFile::reclaim() {
  if (!regions_lock_.try_lock()) return false;
  unsigned count = release_abandoned();
  regions_lock_.unlock();
  return count > 0;
}

void SlotFile::empty(FarRegion& region) {
  clear(region, 0, region.pages());
  auto writing = static_cast<uint16_t>(kWriting | region.id());
  for (SlotNumber slot = kFirstSlot; slot < header_->provided; slot++) {
    uint16_t expected = writing;
    if (references_[slot].load(std::memory_order_relaxed) == writing)
      references_[slot].compare_exchange_strong(expected, 0);
  }
}

void SlotFile::free_record(unsigned id) {
  os::punch_hole(space_fd_, kRegionsAt + id * kRegionStride, kRegionStride);
  header_->records[id].reserved = 0;
  header_->records[id].state = kFree;
}

// ---- Reservations ----

uint64_t SlotFile::reserved_bytes() const {
  uint64_t sum = 0;
  for (unsigned id = 0; id < header_->regions_end; id++) sum += header_->records[id].reserved;
  return sum;
}

// Adds first and compares then, so that processes which do so at the same time never get more than there is.
int SlotFile::reserve(const FarRegion& region, uint64_t bytes) {
  LockGuard hold(regions_lock_);
  std::atomic<uint64_t>& reserved = header_->records[region.id()].reserved;
  reserved += bytes;
  bool fits = reserved_bytes() <= lent_bytes() || (release_abandoned() > 0 && reserved_bytes() <= lent_bytes());
  int r =
      fits ? provide(kHeaderBytes + reserved_bytes() + std::min(spare_bytes(lent_bytes()), kProvideBytes)) : -ENOMEM;
  if (r < 0) reserved -= bytes;
  return r;
}

void SlotFile::unreserve(const FarRegion& region, uint64_t bytes) { header_->records[region.id()].reserved -= bytes; }

// Lets the file system provide the first `bytes` of the file. One that cannot do so beforehand provides them when they
// are written.
int SlotFile::provide(uint64_t bytes) {
  auto wanted = static_cast<SlotNumber>(std::min<uint64_t>(align_up(bytes, kPageSize) / kPageSize, header_->slots));
  SlotNumber provided = header_->provided.load();
  while (provided < wanted) {
    int r = os::fallocate(file_fd_, 0, static_cast<off_t>(provided * kPageSize),
                          static_cast<off_t>((wanted - provided) * kPageSize));
    if (r == -EINTR) continue;
    if (r < 0 && r != -EOPNOTSUPP && r != -ENODEV) return r;
    if (header_->provided.compare_exchange_weak(provided, wanted)) break;
  }
  return 0;
}

// ---- Slots ----

bool SlotFile::take_slots(const FarRegion& region, std::span<SlotNumber> slots) {
  constexpr size_t kRun = 16, kPatience = 8192;
  size_t found = find_slots(region, slots, std::min(kRun, slots.size()), kPatience);
  for (;;) {
    found += find_slots(region, slots.subspan(found), 1, ~size_t{0});
    if (found == slots.size()) return true;
    SlotNumber before = header_->provided;
    if (before < header_->slots && provide(before * kPageSize + kProvideBytes) == 0) continue;
    if (!reclaim()) break;
  }
  for (SlotNumber slot : slots.first(found)) release(slot);
  return false;
}

// Takes runs of at least `run` free neighbours, among the next `patience` slots.
size_t SlotFile::find_slots(const FarRegion& region, std::span<SlotNumber> slots, size_t run, size_t patience) {
  SlotNumber end = header_->provided, at = next_.load(std::memory_order_relaxed);
  size_t found = 0;
  for (size_t left = std::min<size_t>(patience, end - kFirstSlot); found < slots.size() && left > 0;) {
    if (at >= end) at = kFirstSlot;
    size_t length = 0, wanted = slots.size() - found;
    while (length < wanted && at + length < end && references_[at + length].load(std::memory_order_relaxed) == 0)
      length++;
    if (length >= std::min(run, wanted)) found += take_run(region, at, slots.subspan(found, length));
    size_t passed = std::max<size_t>(length, 1);
    at += static_cast<SlotNumber>(passed);
    left -= std::min(left, passed);
  }
  next_.store(at, std::memory_order_relaxed);
  return found;
}

// Some may have been taken by others meanwhile.
size_t SlotFile::take_run(const FarRegion& region, SlotNumber first, std::span<SlotNumber> slots) {
  size_t found = 0;
  for (SlotNumber slot = first; slot < first + slots.size(); slot++) {
    uint16_t expected = 0;
    auto writing = static_cast<uint16_t>(kWriting | region.id());
    if (references_[slot].compare_exchange_strong(expected, writing)) slots[found++] = slot;
  }
  return found;
}

void SlotFile::publish(FarRegion& region, uint64_t page, uint64_t word) {
  uint64_t before = region.exchange(page, word);
  references_[FarRegion::slot_of(word)].store(1, std::memory_order_release);
  if (before != 0) release(FarRegion::slot_of(before));
}

void SlotFile::clear(FarRegion& region, uint64_t page) {
  if (region.word(page) == 0) return;
  uint64_t before = region.exchange(page, 0);
  if (before != 0) release(FarRegion::slot_of(before));
}

void SlotFile::clear(FarRegion& region, uint64_t first, uint64_t end) {
  for (uint64_t page = region.next(first); page < end; page = region.next(page + 1)) clear(region, page);
}

void SlotFile::release(SlotNumber slot) {
  uint16_t count = references_[slot].load(), less;
  do {
    FARSIDE_CHECK(count != 0);
    less = count & kWriting ? 0 : static_cast<uint16_t>(count - 1);
  } while (!references_[slot].compare_exchange_weak(count, less));
}

}  // namespace farside::transport
