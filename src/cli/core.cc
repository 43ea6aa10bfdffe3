// farside core: which addresses of a core dump were far. Reads the list that preload/heap/core_dump.h wrote.
#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "abi/core_map.h"
#include "base/size.h"
#include "cli/commands.h"

namespace farside::cli {
namespace {

using Ranges = std::vector<CoreMapRange>;

struct CoreArguments {
  std::string file, address;
  bool json = false;
};

class CoreFile {
 public:
  explicit CoreFile(const std::string& path) : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    elf_version(EV_CURRENT);
    if (fd_ >= 0) elf_ = elf_begin(fd_, ELF_C_READ, nullptr);
  }
  ~CoreFile() {
    elf_end(elf_);
    if (fd_ >= 0) close(fd_);
  }
  CoreFile(const CoreFile&) = delete;
  CoreFile& operator=(const CoreFile&) = delete;

  Result<Ranges> far_ranges() const {
    if (fd_ < 0) return Status::error(errno, "cannot open {}: {}", path_, strerror(errno));
    GElf_Ehdr header;
    size_t segments;
    if (!elf_ || !gelf_getehdr(elf_, &header) || header.e_type != ET_CORE || elf_getphdrnum(elf_, &segments) != 0)
      return Status::error(EINVAL, "{} is not a core dump", path_);
    for (size_t i = 0; i < segments; i++) {
      GElf_Phdr segment;
      if (!gelf_getphdr(elf_, static_cast<int>(i), &segment) || segment.p_type != PT_LOAD) continue;
      if (auto map = map_at(segment)) return read_ranges(segment, *map);
    }
    return Status::error(ENOENT,
                         "{} has no list of far memory: the program did not run under farside in signal mode, or cores "
                         "were not allowed (ulimit -c) when it began",
                         path_);
  }

 private:
  std::optional<CoreMapHeader> map_at(const GElf_Phdr& segment) const {
    CoreMapHeader header;
    bool read = segment.p_filesz >= sizeof header && read_at(segment.p_offset, &header, sizeof header);
    if (!read || !std::equal(header.magic, header.magic + 2, CoreMapHeader::kMagic)) return std::nullopt;
    return header;
  }
  Result<Ranges> read_ranges(const GElf_Phdr& segment, const CoreMapHeader& header) const {
    Status truncated = Status::error(EIO, "{} is truncated: its list of far memory is not complete", path_);
    if (header.ranges > (segment.p_filesz - sizeof header) / sizeof(CoreMapRange)) return truncated;
    Ranges ranges(header.ranges);
    if (!read_at(segment.p_offset + sizeof header, ranges.data(), ranges.size() * sizeof(CoreMapRange)))
      return truncated;
    std::ranges::sort(ranges, {}, &CoreMapRange::begin);
    return ranges;
  }
  bool read_at(uint64_t offset, void* to, size_t bytes) const {
    return pread(fd_, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }

  const std::string path_;
  const int fd_;
  Elf* elf_ = nullptr;
};

Result<uint64_t> parse_address(const std::string& text) {
  const char* begin = text.c_str() + (text.starts_with("0x") ? 2 : 0);
  const char* end = text.c_str() + text.size();
  uint64_t address = 0;
  auto [rest, error] = std::from_chars(begin, end, address, 16);
  if (begin != end && rest == end && error == std::errc()) return address;
  return Status::error(EINVAL, "'{}' is not an address; write it as in 0x7f12a4000000", text);
}

bool is_far(const Ranges& ranges, uint64_t address) {
  auto after = std::ranges::upper_bound(ranges, address, {}, &CoreMapRange::begin);
  return after != ranges.begin() && address < std::prev(after)->end;
}

Status print_address(const Ranges& ranges, const std::string& text) {
  auto address = parse_address(text);
  if (!address.ok()) return address.status();
  fmt::print("{:#x}: {}\n", *address, is_far(ranges, *address) ? "far: the core has zeros in its place" : "not far");
  return {};
}

void print_json(const Ranges& ranges) {
  nlohmann::json rows = nlohmann::json::array();
  for (const CoreMapRange& r : ranges) rows.push_back({{"begin", r.begin}, {"end", r.end}});
  fmt::print("{}\n", nlohmann::json{{"far", rows}}.dump(2));
}

void print_text(const Ranges& ranges) {
  uint64_t bytes = 0;
  for (const CoreMapRange& r : ranges) {
    fmt::print("{:#x}-{:#x} {}\n", r.begin, r.end, format_size(r.end - r.begin));
    bytes += r.end - r.begin;
  }
  fmt::print("{} in {} ranges were far: the core has zeros in their place\n", format_size(bytes), ranges.size());
}

int show_core(const CoreArguments& arguments) {
  auto ranges = CoreFile(arguments.file).far_ranges();
  if (!ranges.ok()) return fail(ranges.status());
  Status status;
  if (!arguments.address.empty()) status = print_address(*ranges, arguments.address);
  else if (arguments.json) print_json(*ranges);
  else print_text(*ranges);
  return status.ok() ? 0 : fail(status);
}

}  // namespace

void add_core_command(Command& parent) {
  Command& command = parent.add_command("core", "Show which addresses of a core dump were far");
  auto arguments = std::make_shared<CoreArguments>();
  command.add_option("file", &arguments->file, "core dump of a program under farside run").required().value("FILE");
  command.add_option("address", &arguments->address, "show only whether this one was far").value("ADDRESS");
  command.add_flag("--json", &arguments->json, "print JSON");
  command.set_footer(
      "Far memory is missing from a core, unless farside run --tune core=all fetched it.\n\nExamples:\n  farside core "
      "core\n"
      "  farside core core 0x7f12a4000010");
  command.set_action([arguments] { return show_core(*arguments); });
}

}  // namespace farside::cli
