#include "launch/program_check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>

#include "abi/program_kind.h"

namespace farside {
namespace {

constexpr int kMaxInterpreters = 4;  // the kernel's limit
constexpr size_t kMaxScriptLine = 255;

bool is_regular_file(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

Status check_file(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return Status::error(errno, "{}: {}", path, strerror(errno));
  if (!S_ISREG(info.st_mode)) return Status::error(EACCES, "{} is not a file that can be executed", path);
  if (access(path.c_str(), X_OK) != 0) {
    return Status::error(EACCES, "{} is not executable; chmod +x it, or run its interpreter", path);
  }
  if (access(path.c_str(), R_OK) != 0)
    return Status::error(EACCES, "{} is not readable, so it cannot be checked", path);
  if ((info.st_mode & (S_ISUID | S_ISGID)) != 0) {
    return Status::error(EPERM, "{} is setuid or setgid: such programs ignore LD_PRELOAD; run a copy without that bit",
                         path);
  }
  if (getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) {
    return Status::error(EPERM, "{} has file capabilities: such programs ignore LD_PRELOAD; run a copy without them",
                         path);
  }
  return {};
}

// A file in memory.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0) {
      bytes_ = static_cast<size_t>(info.st_size);
      data_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (fd >= 0) close(fd);
  }
  ~MappedFile() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view text() const {
    return data_ == MAP_FAILED ? "" : std::string_view(static_cast<const char*>(data_), bytes_);
  }

 private:
  void* data_ = MAP_FAILED;
  size_t bytes_ = 0;
};

Status check_elf(const std::string& path, ProgramKind kind) {
  switch (kind) {
    case ProgramKind::k32Bit:
      return Status::error(ENOEXEC, "{} is a 32-bit program; use its 64-bit build", path);
    case ProgramKind::kTruncated:
      return Status::error(ENOEXEC, "{} is cut short: its ELF headers are incomplete", path);
    case ProgramKind::kOtherProcessor:
      return Status::error(ENOEXEC, "{} is built for another processor", path);
    case ProgramKind::kStatic:
      return Status::error(
          EPERM,
          "{} is statically linked, so nothing can be preloaded; start it by farside run itself, or use a dynamically "
          "linked build",
          path);
    case ProgramKind::kSanitizer:
      return Status::error(EPERM,
                           "{} is built with a sanitizer, which replaces malloc as Farside does; run it without "
                           "farside, or a build without -fsanitize",
                           path);
    default:
      return {};
  }
}

// The first word after "#!".
std::string interpreter_of(std::string_view script) {
  std::string_view line = script.substr(2, kMaxScriptLine);
  line = line.substr(0, line.find('\n'));
  size_t begin = line.find_first_not_of(" \t");
  if (begin == line.npos) return "";
  return std::string(line.substr(begin, line.find_first_of(" \t", begin) - begin));
}

Status check_program_at_depth(const std::string& path, int depth) {
  Status readable = check_file(path);
  if (!readable.ok()) return readable;
  MappedFile file(path);
  std::string_view text = file.text();
  ProgramKind kind = kind_of_program(text.data(), text.size());
  if (kind != ProgramKind::kNotElf) return check_elf(path, kind);
  if (!text.starts_with("#!")) {
    return Status::error(ENOEXEC, "{} is neither an ELF program nor a script with a #! line", path);
  }
  if (depth == kMaxInterpreters) return Status::error(ELOOP, "{}: too many levels of scripts as interpreters", path);
  std::string interpreter = interpreter_of(text);
  if (is_regular_file(interpreter)) return check_program_at_depth(interpreter, depth + 1);
  return Status::error(ENOENT, "{}: its interpreter '{}' does not exist", path, interpreter);
}

}  // namespace

Result<std::string> find_program(std::string_view name, std::string_view search_path) {
  if (name.empty()) return Status::error(ENOENT, "the program's name is empty");
  if (name.find('/') != name.npos) return std::string(name);
  std::string found;  // a file that is not executable, unless a later folder has an executable one
  while (true) {
    size_t colon = search_path.find(':');
    std::string_view folder = search_path.substr(0, colon);
    std::string path = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    if (is_regular_file(path)) {
      if (access(path.c_str(), X_OK) == 0) return path;
      if (found.empty()) found = path;
    }
    if (colon == search_path.npos) break;
    search_path.remove_prefix(colon + 1);
  }
  if (!found.empty()) return found;
  return Status::error(ENOENT, "{}: no such program in PATH", name);
}

Status check_program(const std::string& path) { return check_program_at_depth(path, 0); }

bool is_static_program(const std::string& path) {
  if (!check_file(path).ok()) return false;
  MappedFile file(path);
  return kind_of_program(file.text().data(), file.text().size()) == ProgramKind::kStatic;
}

int exit_status_of(const Status& status) { return status.code() == ENOENT || status.code() == ENOTDIR ? 127 : 126; }

}  // namespace farside
