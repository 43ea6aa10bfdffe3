// Far files: what their owner relies on besides the requirements of every channel.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>

#include "fixture.h"
#include "remote/connect.h"
#include "remote/far_file.h"

namespace farside::testing {
namespace {

using remote::connect_store;
using remote::FarFile;
using remote::RemoteStore;

std::string g_failure;  // what the store reported

std::unique_ptr<RemoteStore> connect_file(const std::string& address, const std::string& token = "") {
  g_failure.clear();
  auto store = connect_store({.address = address.c_str(),
                              .token = token.c_str(),
                              .region_bytes = kRegion,
                              .on_failure = [](const Status& reason) { g_failure = reason.text(); }});
  if (!store.ok()) throw std::runtime_error(store.status().text());
  return std::move(*store);
}

std::unique_ptr<RemoteStore> connect_and_grow(const std::string& address) {
  auto store = connect_file(address);
  if (!store->grow(2 * kSlab).ok()) throw std::runtime_error("cannot reserve");
  return store;
}

std::string refusal_of(const std::string& address) {
  auto store = connect_store({.address = address.c_str(), .token = "", .region_bytes = kRegion});
  return store.ok() ? "" : store.status().text();
}

// The descriptor of the store's file, which has no name.
int file_of(const RemoteStore& store) {
  for (int fd = 0; fd < 65536; fd++) {
    struct stat info = {};
    if (store.owns_fd(fd) && fstat(fd, &info) == 0 && info.st_size < (int64_t{1} << 31)) return fd;
  }
  throw std::runtime_error("no file");
}

// The bytes of the file, read past the channel.
Bytes content_of(const RemoteStore& store) {
  int fd = os::open(("/proc/self/fd/" + std::to_string(file_of(store))).c_str(), O_RDONLY);
  struct stat info = {};
  fstat(fd, &info);
  Bytes all(static_cast<size_t>(info.st_size));
  EXPECT_EQ(pread(fd, all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
  close(fd);
  return all;
}

bool contains(const Bytes& all, const Bytes& part) {
  return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

TEST(FarFile, IsPrivateAndHasNoName) {
  std::string path = unix_path();
  auto store = connect_file("file:" + path + "?size=64M");
  struct stat info = {};
  ASSERT_EQ(fstat(file_of(*store), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(info.st_nlink, 0u);
  EXPECT_NE(stat(path.c_str(), &info), 0);
}

TEST(FarFile, RefusesWhatItWouldOverwrite) {
  std::string path = unix_path();
  std::ofstream(path) << "valuable";
  std::string text = refusal_of("file:" + path + "?size=64M");
  EXPECT_NE(text.find("exists"), text.npos) << text;
  EXPECT_NE(text.find("[F113]"), text.npos) << text;
  unlink(path.c_str());
  EXPECT_NE(refusal_of("file:/no/such/folder/file?size=64M").find("cannot create"), std::string::npos);
  EXPECT_NE(refusal_of("file:/tmp").find("size="), std::string::npos);
  EXPECT_NE(refusal_of("file:/tmp?size=1M").find("less than"), std::string::npos);
  EXPECT_NE(refusal_of("file:/tmp?size=64M,tcp://127.0.0.1:1").find("cannot be combined"), std::string::npos);
}

TEST(FarFile, AFlippedBitIsFound) {
  for (const char* crypt : {"", "&crypt=yes"}) {
    auto store = connect_and_grow(far_file(crypt));
    auto channel = open(store.get());
    Bytes data = pattern(8 * 4096, 1), back(100);
    ASSERT_EQ(write(channel.get(), 0, data), 0);
    Bytes before = content_of(*store);
    size_t at = 0;
    while (before[at] == 0) at++;  // in the slot of the first page that was written
    int fd = os::open(("/proc/self/fd/" + std::to_string(file_of(*store))).c_str(), O_RDWR);
    uint8_t changed = before[at + 1000] ^ 4;
    ASSERT_EQ(pwrite(fd, &changed, 1, static_cast<off_t>(at + 1000)), 1);
    fsync(fd);
    close(fd);
    int failed = 0;
    for (uint64_t page = 0; page < 8; page++) failed += read(channel.get(), page * 4096 + 7, &back) == -ECONNRESET;
    EXPECT_GE(failed, 1);
    EXPECT_NE(g_failure.find("is damaged in the far file"), g_failure.npos) << g_failure;
    EXPECT_NE(g_failure.find("[F209]"), g_failure.npos) << g_failure;
    EXPECT_EQ(write(channel.get(), 0, data), -ECONNRESET);
  }
}

TEST(FarFile, EncryptedPagesAreNotReadable) {
  Bytes secret = pattern(4096, 99), part(secret.begin(), secret.begin() + 16);
  for (bool encrypted : {false, true}) {
    auto store = connect_and_grow(far_file(encrypted ? "&crypt=yes" : ""));
    auto channel = open(store.get());
    ASSERT_EQ(write(channel.get(), 8192, secret), 0);
    EXPECT_EQ(contains(content_of(*store), part), !encrypted);
    EXPECT_EQ(read(channel.get(), 8192, 4096), secret);
  }
}

TEST(FarFile, IsOverwrittenAtItsEndIfRequested) {
  Bytes secret = pattern(4096, 98), part(secret.begin(), secret.begin() + 16);
  for (bool wiped : {false, true}) {
    auto store = connect_and_grow(far_file(wiped ? "&keep=wipe" : ""));
    ASSERT_EQ(write(open(store.get()).get(), 0, secret), 0);
    int kept = os::open(("/proc/self/fd/" + std::to_string(file_of(*store))).c_str(), O_RDONLY);
    store.reset();
    Bytes all(1 << 20);
    ASSERT_GT(pread(kept, all.data(), all.size(), 0), 0);
    close(kept);
    EXPECT_EQ(contains(all, part), !wiped);
  }
}

TEST(FarFile, ErrorsOfTheDeviceEndTheProgram) {
  auto store = connect_and_grow(far_file());
  auto channel = open(store.get());
  int fd = file_of(*store), unreadable = os::open("/dev/null", O_WRONLY);
  ASSERT_EQ(write(channel.get(), 0, pattern(4096, 1)), 0);
  ASSERT_EQ(dup2(unreadable, fd), fd);
  Bytes back(4096);
  EXPECT_EQ(read(channel.get(), 0, &back), -ECONNRESET);
  EXPECT_NE(g_failure.find("cannot be read"), g_failure.npos) << g_failure;
  EXPECT_NE(g_failure.find("[F208]"), g_failure.npos) << g_failure;
  close(unreadable);
}

// A file system of 100 MiB in a mount namespace of its own. Needs root.
TEST(FarFile, AReservationThatTheFileSystemCannotHoldIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  std::string folder = unix_path();
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(mount("farside-test", folder.c_str(), "tmpfs", 0, "size=100M"), 0);
  {
    auto store = connect_file("file:" + folder + "?size=256M");
    EXPECT_TRUE(store->grow(kSlab).ok());
    Status refused = store->grow(12 * kSlab);
    EXPECT_EQ(refused.code(), ENOMEM);
    EXPECT_NE(std::string(refused.text()).find("has no room for"), std::string::npos) << refused.text();
    auto channel = open(store.get());
    Bytes data = pattern(4096, 1);
    EXPECT_EQ(write(channel.get(), 0, data), 0);
    EXPECT_EQ(read(channel.get(), 0, 4096), data);
    std::string text = refusal_of("file:" + folder + "?size=256M&alloc=full");
    EXPECT_NE(text.find("lower its size"), text.npos) << text;
    // Another program takes the room that the file was promised.
    int file = file_of(*store);
    ASSERT_EQ(ftruncate(file, 0), 0);
    int other = os::open((folder + "/other").c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_EQ(fallocate(other, 0, 0, 100 << 20), 0);
    EXPECT_EQ(write(channel.get(), 0, data), -ECONNRESET);
    EXPECT_NE(g_failure.find("its file system has no room"), g_failure.npos) << g_failure;
    EXPECT_NE(g_failure.find("[F210]"), g_failure.npos) << g_failure;
    close(other);
  }
  umount2(folder.c_str(), MNT_DETACH);
  rmdir(folder.c_str());
}

TEST(FarFile, ReservationsKeepToItsSize) {
  auto store = connect_file("file:/tmp?size=64M");
  EXPECT_TRUE(store->grow(3 * kSlab).ok());
  Status full = store->grow(2 * kSlab);
  EXPECT_EQ(full.code(), ENOMEM);
  EXPECT_NE(std::string(full.text()).find("give it a larger size"), std::string::npos) << full.text();
  store->shrink(kSlab);
  EXPECT_TRUE(store->grow(2 * kSlab).ok());
}

// All of the file is rewritten many times, so every slot is used again.
TEST(FarFile, SlotsAreUsedAgain) {
  auto store = connect_file("file:/tmp?size=64M");
  ASSERT_TRUE(store->grow(4 * kSlab).ok());
  auto channel = open(store.get());
  for (uint64_t round = 0; round < 4; round++) {
    for (uint64_t at = 0; at < kRegion; at += 1 << 20)
      ASSERT_EQ(write(channel.get(), at, pattern(1 << 20, at + round)), 0);
  }
  for (uint64_t at = 0; at < kRegion; at += 1 << 20)
    EXPECT_EQ(read(channel.get(), at, 1 << 20), pattern(1 << 20, at + 3));
}

// A program that writes for ever, and one that frees and reserves again: the file takes room for what is reserved at a
// time, and its spare.
TEST(FarFile, RewritingDoesNotMakeItGrow) {
  constexpr uint64_t kReserved = 2 * kSlab, kProvided = 64 << 20, kBlock = 512;
  auto store = connect_file("file:/tmp?size=1G");
  auto room = [&] {
    struct stat info = {};
    fstat(file_of(*store), &info);
    return static_cast<uint64_t>(info.st_blocks) * kBlock;
  };
  auto channel = open(store.get());
  for (uint64_t round = 0; round < 8; round++) {
    ASSERT_TRUE(store->grow(kReserved).ok());
    for (uint64_t at = 0; at < kReserved; at += 1 << 20)
      ASSERT_EQ(write(channel.get(), at, pattern(1 << 20, at + round)), 0);
    EXPECT_LE(room(), kReserved + kProvided + (1 << 20)) << round;
    ASSERT_EQ(discard(channel.get(), 0, kReserved), 0);
    store->shrink(kReserved);
  }
}

// The processes of a run, which inherit the descriptors of one file.
class FarFileOfARun : public ::testing::Test {
 protected:
  // Runs body in a process that is then killed.
  void run_and_kill(const std::function<bool(RemoteStore*)>& body) {
    pid_t pid = fork();
    if (pid == 0) {
      auto store = connect_file(far_file(), token_);
      bool good = body(store.get());
      if (!good) _exit(1);
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
  }
  std::unique_ptr<FarFile> file_ = std::move(*FarFile::create(*remote::parse_address(far_file().c_str())));
  std::string token_ = file_->hand_over();
};

TEST_F(FarFileOfARun, MemoryOfKilledProcessesIsReleased) {
  for (int i = 0; i < 6; i++) {
    run_and_kill([&](RemoteStore* store) {
      auto channel = open(store);
      if (!store->grow(4 * kSlab).ok() || read(channel.get(), 0, 4096) != Bytes(4096)) return false;
      for (uint64_t at = 0; at < kRegion; at += 1 << 20) {
        if (write(channel.get(), at, pattern(1 << 20, at)) != 0) return false;
      }
      return true;
    });
  }
  EXPECT_EQ(file_->users(), 0u);
}

// As a program in handler mode does that closes all descriptors: its lock is gone, and its pages with it.
TEST_F(FarFileOfARun, AProcessThatClosesTheTableReadsNoZeros) {
  Turn closed, released;
  pid_t pid = fork();
  if (pid == 0) {
    auto store = connect_file(far_file(), token_);
    auto channel = open(store.get());
    if (!store->grow(kSlab).ok() || write(channel.get(), 0, Bytes(4096, 1)) != 0) _exit(1);
    close(file_->space().space_fd());
    closed.give();
    released.take();
    Bytes back(4096);
    _exit(read(channel.get(), 0, &back) == -ECONNRESET && g_failure.find("[F603]") != g_failure.npos ? 0 : 2);
  }
  closed.take();
  connect_file(far_file(), token_);
  released.give();
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(FarFileOfARun, ProcessesAreIsolated) {
  auto mine = connect_file(far_file(), token_);
  ASSERT_TRUE(mine->grow(kSlab).ok());
  auto channel = open(mine.get());
  Bytes data = pattern(100000, 5);
  ASSERT_EQ(write(channel.get(), 0, data), 0);
  run_and_kill([&](RemoteStore* store) {
    auto other = open(store);
    return store->grow(kSlab).ok() && read(other.get(), 0, 4096) == Bytes(4096) &&
           write(other.get(), 0, Bytes(100000, 3)) == 0;
  });
  EXPECT_EQ(read(channel.get(), 0, data.size()), data);
  run_and_kill([&](RemoteStore* store) { return !store->grow(8 * kSlab).ok() && store->grow(7 * kSlab).ok(); });
  EXPECT_EQ(read(channel.get(), 0, data.size()), data);
}

// A child that changes more than the file has room for ends with a message; its parent does not notice.
TEST_F(FarFileOfARun, AFileThatForksFillIsReported) {
  auto store = connect_file(far_file(), token_);
  ASSERT_TRUE(store->grow(4 * kSlab).ok());
  auto fill = [](RemoteStore* s, uint64_t seed) {
    auto channel = open(s);
    int r = 0;
    for (uint64_t at = 0; at < kRegion && r == 0; at += 1 << 20)
      r = write(channel.get(), at, pattern(1 << 20, at + seed));
    return r;
  };
  ASSERT_EQ(fill(store.get(), 0), 0);
  std::vector<pid_t> children;
  int results[2];
  ASSERT_EQ(pipe(results), 0);
  for (uint64_t i = 1; i <= 2; i++) {
    auto ticket = store->prepare_fork();
    ASSERT_TRUE(ticket.ok()) << ticket.status().text();
    pid_t pid = fork();
    if (pid == 0) {
      int r = store->adopt_in_child(*ticket).ok() ? fill(store.get(), i) : 1;
      char result = r == 0 ? 'w' : g_failure.find("is full: forked processes") != g_failure.npos ? 'f' : '?';
      (void)!::write(results[1], &result, 1);
      for (;;) pause();
    }
    children.push_back(pid);
    store->forked_in_parent(*ticket);
    char result = 0;
    ASSERT_EQ(::read(results[0], &result, 1), 1);
    EXPECT_EQ(result, i == 1 ? 'w' : 'f');
  }
  auto channel = open(store.get());
  for (uint64_t at = 0; at < kRegion; at += 1 << 20) EXPECT_EQ(read(channel.get(), at, 1 << 20), pattern(1 << 20, at));
  for (pid_t pid : children) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

}  // namespace
}  // namespace farside::testing
