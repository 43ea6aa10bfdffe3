#include "abi/page_trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace farside {

PageTraceWriter::~PageTraceWriter() {
  if (file_) fclose(file_);
}

Status PageTraceWriter::open(const std::string& path) {
  path_ = path;
  file_ = fopen(path.c_str(), "wb");
  if (!file_) return Status::error(errno, "cannot create {}: {}", path, strerror(errno));
  fwrite(&header_, sizeof header_, 1, file_);
  return {};
}

void PageTraceWriter::access_other(uint64_t page) {
  auto found = std::find(nearest_.begin() + 1, nearest_.end(), page);
  bool recent = found != nearest_.end();
  if (!recent) found = std::prev(nearest_.end());
  std::copy_backward(nearest_.begin(), found, found + 1);
  nearest_[0] = page;
  if (recent) return;
  auto [entry, is_new] = numbers_.try_emplace(page, static_cast<uint32_t>(numbers_.size()));
  header_.recorded++;
  put(entry->second);
}

void PageTraceWriter::put(uint32_t number) {
  int64_t difference = int64_t{number} - before_;
  before_ = number;
  auto left = static_cast<uint64_t>(difference) << 1 ^ static_cast<uint64_t>(difference >> 63);
  for (; left >= 128; left >>= 7) fputc(static_cast<int>(left & 127) | 128, file_);
  fputc(static_cast<int>(left), file_);
}

Status PageTraceWriter::close() {
  header_.pages = numbers_.size();
  bool written = fseek(file_, 0, SEEK_SET) == 0 && fwrite(&header_, sizeof header_, 1, file_) == 1;
  written = fclose(file_) == 0 && written;
  file_ = nullptr;
  return written ? Status() : Status::error(errno, "cannot write {}: {}", path_, strerror(errno));
}

Result<PageTrace> read_page_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status::error(errno, "cannot read {}: {}", path, strerror(errno));
  PageTrace trace;
  file.read(reinterpret_cast<char*>(&trace.header), sizeof trace.header);
  if (!file || trace.header.magic != PageTraceHeader::kMagic)
    return Status::error(EINVAL, "{} is not a trace of pages; farside plan --record writes one", path);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  int64_t page = 0;
  uint64_t value = 0;
  unsigned shift = 0;
  for (char byte : bytes) {
    value |= uint64_t{static_cast<unsigned char>(byte) & 127u} << shift;
    shift += 7;
    if ((byte & 128) && shift < 63) continue;
    page += static_cast<int64_t>(value >> 1 ^ -(value & 1));
    if (page < 0 || static_cast<uint64_t>(page) >= trace.header.pages) break;
    trace.accesses.push_back(static_cast<uint32_t>(page));
    value = shift = 0;
  }
  if (trace.accesses.size() != trace.header.recorded || trace.header.pages == 0)
    return Status::error(EINVAL, "{} is incomplete or damaged", path);
  return trace;
}

}  // namespace farside
