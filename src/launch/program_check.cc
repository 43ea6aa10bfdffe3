#include "launch/program_check.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

namespace farside {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#else
constexpr uint16_t kMachine = EM_AARCH64;
#endif
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

template <typename T>
bool read_at(std::ifstream& file, uint64_t offset, T* value) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(value), sizeof *value));
}

bool has_dynamic_linker(std::ifstream& file, const Elf64_Ehdr& header) {
  for (unsigned i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    if (!read_at(file, header.e_phoff + uint64_t{i} * header.e_phentsize, &segment)) return false;
    if (segment.p_type == PT_INTERP) return true;
  }
  return false;
}

Status check_elf(const std::string& path, std::ifstream& file) {
  Elf64_Ehdr header = {};
  bool complete = read_at(file, 0, &header);
  if (header.e_ident[EI_CLASS] == ELFCLASS32) {
    return Status::error(ENOEXEC, "{} is a 32-bit program; use its 64-bit build", path);
  }
  if (!complete) return Status::error(ENOEXEC, "{} is cut short: its ELF header is incomplete", path);
  if (header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != kMachine) {
    return Status::error(ENOEXEC, "{} is built for another processor", path);
  }
  if (has_dynamic_linker(file, header)) return {};
  return Status::error(EPERM, "{} is statically linked, so nothing can be preloaded; use a dynamically linked build",
                       path);
}

// The first word after "#!".
std::string interpreter_of(std::ifstream& file) {
  std::string line(kMaxScriptLine, 0);
  file.seekg(2);
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(file.gcount()));
  line.resize(std::min(line.find('\n'), line.size()));
  size_t begin = line.find_first_not_of(" \t");
  if (begin == line.npos) return "";
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

Status check_program_at_depth(const std::string& path, int depth) {
  Status readable = check_file(path);
  if (!readable.ok()) return readable;
  std::ifstream file(path, std::ios::binary);
  char magic[SELFMAG] = {};
  file.read(magic, sizeof magic);
  file.clear();
  if (memcmp(magic, ELFMAG, SELFMAG) == 0) return check_elf(path, file);
  if (magic[0] != '#' || magic[1] != '!') {
    return Status::error(ENOEXEC, "{} is neither an ELF program nor a script with a #! line", path);
  }
  if (depth == kMaxInterpreters) return Status::error(ELOOP, "{}: too many levels of scripts as interpreters", path);
  std::string interpreter = interpreter_of(file);
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

int exit_status_of(const Status& status) { return status.code() == ENOENT || status.code() == ENOTDIR ? 127 : 126; }

}  // namespace farside
