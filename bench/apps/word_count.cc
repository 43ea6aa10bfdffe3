// Word count by map and reduce, with a working set that shifts from the text to the mapped records (Metis, as in
// MAGE 6.2). At most half of the text is read from files of the installed packages: licences, copyrights, headers. The
// rest repeats their paragraphs in random order. Map counts words in each split and appends them to partitions; reduce
// sums up each partition. An operation is one word that is mapped or one record that is reduced. Two hinted lines.
#include <filesystem>
#include <fstream>
#include <map>

#include "app.h"

namespace farside::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRoots[] = {"/usr/share/common-licenses", "/usr/share/doc", "/usr/include"};
constexpr uint64_t kMaxReal = uint64_t{64} << 20;
constexpr double kTextShare = 0.5;  // of the data; the rest is for records
constexpr uint64_t kSplit = uint64_t{8} << 10;
constexpr unsigned kPartitions = 64;  // by the highest 6 bits of hashes
constexpr size_t kMaxLetters = 40;

// --- Text ---

bool is_text(const fs::path& path) {
  std::string name = path.filename();
  return name == "copyright" || path.parent_path() == kRoots[0] || path.extension() == ".h" ||
         path.extension() == ".hpp" || path.extension() == ".txt";
}

// In an order that is the same in every run.
std::vector<fs::path> text_files() {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const char* root : kRoots) {
    size_t before = files.size();
    for (const auto& entry : fs::recursive_directory_iterator(root, ignored)) {
      if (!entry.is_symlink(ignored) && entry.is_regular_file(ignored) && is_text(entry.path()))
        files.push_back(entry.path());
    }
    std::sort(files.begin() + static_cast<ptrdiff_t>(before), files.end());
  }
  return files;
}

class Text {
 public:
  Text(uint64_t bytes, uint64_t seed) : bytes_(bytes), text_(make_array<char>(bytes)) {
    read_files(std::min(bytes / 2, kMaxReal));
    find_paragraphs();
    for (uint64_t number = 0; used_ < bytes_; number++) repeat(mix(mix(seed) + number) % (starts_.size() - 1));
  }

  uint64_t bytes() const { return bytes_; }
  uint64_t splits() const { return (bytes_ + kSplit - 1) / kSplit; }

  // Calls use(word) for the words that begin in the split: runs of letters in lower case, cut at kMaxLetters.
  template <typename Use>
  void words_of(uint64_t split, Use use) const {
    uint64_t at = split * kSplit, end = std::min(at + kSplit, bytes_);
    hint(&text_[at], end - at, FARSIDE_READ | FARSIDE_AHEAD(32));
    while (at > 0 && at < end && is_letter(text_[at - 1]) && is_letter(text_[at])) at++;
    while (at < end) {
      char word[kMaxLetters];
      size_t letters = 0;
      for (; at < bytes_ && is_letter(text_[at]); at++) {
        if (letters < kMaxLetters) word[letters++] = static_cast<char>(text_[at] | 0x20);
      }
      if (letters > 0) use(std::string_view(word, letters));
      while (at < end && !is_letter(text_[at])) at++;
    }
  }

 private:
  static bool is_letter(char c) { return static_cast<unsigned char>((c | 0x20) - 'a') < 26; }

  void read_files(uint64_t wanted) {
    for (const fs::path& path : text_files()) {
      std::ifstream file(path, std::ios::binary);
      file.read(&text_[used_], static_cast<std::streamsize>(wanted - used_));
      used_ += static_cast<uint64_t>(file.gcount());
      if (used_ == wanted) return;
    }
    if (used_ == 0) fprintf(stderr, "word_count: no text in /usr/share and /usr/include\n"), exit(1);
  }

  // Paragraphs are separated by empty lines.
  void find_paragraphs() {
    starts_.push_back(0);
    for (uint64_t i = 1; i + 1 < used_; i++) {
      if (text_[i - 1] == '\n' && text_[i] == '\n' && text_[i + 1] != '\n') starts_.push_back(i + 1);
    }
    starts_.push_back(used_);
  }

  void repeat(uint64_t paragraph) {
    uint64_t length = std::min(starts_[paragraph + 1] - starts_[paragraph], bytes_ - used_);
    memcpy(&text_[used_], &text_[starts_[paragraph]], length);
    used_ += length;
  }

  uint64_t bytes_, used_ = 0;
  Array<char> text_;
  std::vector<uint64_t> starts_;  // of the paragraphs that were read, and the end of the last one
};

// --- Records ---

// A word with its count. The letters follow in memory.
struct Record {
  uint64_t hash;
  uint32_t count;
  uint16_t letters;
  std::string_view word() const { return {reinterpret_cast<const char*>(this + 1), letters}; }
  size_t bytes() const { return sizeof(Record) + (letters + 7u) / 8 * 8; }
};

// The records of one thread in one partition. Records are only appended and never moved.
class Records {
 public:
  Record* append(std::string_view word, uint64_t hash, uint32_t count) {
    Record record = {hash, count, static_cast<uint16_t>(word.size())};
    if (chunks_.empty() || chunks_.back().used + record.bytes() > kChunk) chunks_.push_back({make_array<char>(kChunk)});
    Chunk& chunk = chunks_.back();
    char* place = &chunk.bytes[chunk.used];
    memcpy(place, &record, sizeof record);
    memcpy(place + sizeof record, word.data(), word.size());
    chunk.used += record.bytes();
    return reinterpret_cast<Record*>(place);
  }

  template <typename Use>
  void each(Use use) const {
    for (const Chunk& chunk : chunks_) {
      hint(&chunk.bytes[0], kChunk, FARSIDE_READ);
      for (size_t at = 0; at < chunk.used;) {
        const auto* record = reinterpret_cast<const Record*>(&chunk.bytes[at]);
        use(*record);
        at += record->bytes();
      }
    }
  }

  void clear() {
    if (chunks_.empty()) return;
    chunks_.resize(1);
    chunks_[0].used = 0;
  }

 private:
  static constexpr size_t kChunk = 16384;
  struct Chunk {
    Array<char> bytes;
    size_t used = 0;
  };
  std::vector<Chunk> chunks_;
};

// Counts by word: open addressing with linear probing over records.
class Counts {
 public:
  Counts() : slots_(1024) {}

  void add(std::string_view word, uint64_t hash, uint32_t count) {
    size_t at = hash & (slots_.size() - 1);
    for (; slots_[at]; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at]->hash == hash && slots_[at]->word() == word) {
        slots_[at]->count += count;
        return;
      }
    }
    slots_[at] = records_.append(word, hash, count);
    if (++used_ * 2 > slots_.size()) grow();
  }

  template <typename Use>
  void each(Use use) const {
    records_.each(use);
  }
  uint64_t words() const { return used_; }
  void clear() {
    std::fill(slots_.begin(), slots_.end(), nullptr);
    records_.clear();
    used_ = 0;
  }

 private:
  void grow() {
    std::vector<Record*> old(slots_.size() * 2);
    old.swap(slots_);
    for (Record* record : old) {
      if (!record) continue;
      size_t at = record->hash & (slots_.size() - 1);
      while (slots_[at]) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = record;
    }
  }

  std::vector<Record*> slots_;
  Records records_;
  size_t used_ = 0;
};

// --- Map and reduce ---

// Depends on the word and on its count.
uint64_t digest_of(const Record& record) { return mix(record.hash ^ mix(record.count)); }

class WordCount : public App {
 public:
  explicit WordCount(const Arguments& a)
      : a_(a),
        threads_(a.threads),
        text_(static_cast<uint64_t>(static_cast<double>(a.size) * kTextShare), a.seed),
        partitions_(a.threads * kPartitions) {}

  uint64_t run() {
    TimeLine line(threads_);
    words_ = map(line);
    double map_s = line.seconds();
    reduce(line);
    members_ = member("map_s", map_s) + member("reduce_s", line.seconds() - map_s) + member("shift_s", map_s) +
               ",\"words\":" + std::to_string(words_) + ",\"records\":" + std::to_string(total_.records) +
               ",\"distinct\":" + std::to_string(total_.distinct) + line.text();
    return words_ + total_.records;
  }

  const char* wrong() const {
    if (total_.words != words_) return "words are missing";
    return a_.verify && !is_right() ? "wrong counts" : nullptr;
  }
  uint64_t checksum() const { return total_.checksum; }
  std::string members(double) const { return members_; }

 private:
  struct Result {
    uint64_t records = 0, words = 0, distinct = 0, checksum = 0;
  };

  uint64_t map(TimeLine& line) {
    std::atomic<uint64_t> mapped{0};
    in_parallel(threads_, text_.splits(), [&](unsigned t, uint64_t begin, uint64_t end) {
      Counts counts;
      for (uint64_t split = begin; split < end; split++) {
        uint64_t words = map_split(split, counts, &partitions_[t * kPartitions]);
        line.put(t, words);
        mapped += words;
      }
    });
    return mapped;
  }

  void reduce(TimeLine& line) {
    std::vector<Result> results(threads_);
    in_parallel(threads_, kPartitions, [&](unsigned t, uint64_t begin, uint64_t end) {
      for (uint64_t p = begin; p < end; p++) reduce_partition(p, t, line, results[t]);
    });
    for (const Result& r : results) {
      total_.records += r.records;
      total_.words += r.words;
      total_.distinct += r.distinct;
      total_.checksum += r.checksum;
    }
  }

  // Counts all words again, in one std::map.
  bool is_right() const {
    std::map<std::string, uint32_t> counts;
    for (uint64_t split = 0; split < text_.splits(); split++)
      text_.words_of(split, [&](std::string_view word) { counts[std::string(word)]++; });
    uint64_t sum = 0;
    for (const auto& [word, count] : counts)
      sum += digest_of({hash_of(word), count, static_cast<uint16_t>(word.size())});
    return sum == total_.checksum && counts.size() == total_.distinct;
  }

  uint64_t map_split(uint64_t split, Counts& counts, Records* partitions) const {
    uint64_t words = 0;
    counts.clear();
    text_.words_of(split, [&](std::string_view word) {
      counts.add(word, hash_of(word), 1);
      words++;
    });
    counts.each([&](const Record& r) { partitions[r.hash >> 58].append(r.word(), r.hash, r.count); });
    return words;
  }

  void reduce_partition(uint64_t partition, unsigned thread, TimeLine& line, Result& result) const {
    Counts counts;
    for (unsigned t = 0; t < threads_; t++) {
      uint64_t before = result.records;
      partitions_[t * kPartitions + partition].each([&](const Record& r) {
        counts.add(r.word(), r.hash, r.count);
        result.records++;
      });
      line.put(thread, result.records - before);
    }
    result.distinct += counts.words();
    counts.each([&](const Record& r) {
      result.words += r.count;
      result.checksum += digest_of(r);
    });
  }

  const Arguments a_;
  const unsigned threads_;
  Text text_;
  std::vector<Records> partitions_;  // kPartitions of the first thread, then of the second, ...
  uint64_t words_ = 0;
  Result total_;
  std::string members_;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  return run_app<WordCount>("word_count", parse(argc, argv));
}
