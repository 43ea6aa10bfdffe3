// What `farside bench all` has measured so far, in a file that is written after every run, so that a benchmark of hours
// can be stopped and goes on.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside::bench {

inline constexpr const char* kNative = "native";
inline constexpr const char* kFar = "far";
inline constexpr const char* kHinted = "hinted";
inline constexpr const char* kZram = "zram";

// One run of one application.
struct Task {
  std::string app, configuration;
  unsigned share;  // percent of its memory that may be near; 100 for the native way
  unsigned repetition;
  std::string key() const;  // "gups/far/25/0"
};

struct TaskList {
  std::vector<std::string> apps, configurations;
  std::vector<unsigned> shares = {10, 30, 50, 70, 90, 100};
  unsigned repetitions = 3;
};
// Ways take turns, so that drift of the machine hits all alike, and the native run of an application comes first: what
// others are given follows from it. Hinted ones only where there are hints.
std::vector<Task> tasks_of(const TaskList& list);

class Results {
 public:
  // Goes on with the file, if it was measured with the same settings and `fresh` is false.
  static Result<Results> open(const std::string& file, const nlohmann::json& settings, bool fresh);

  // A run that failed is tried again; one that was cut off is not, nor are its repetitions.
  bool needs(const Task& task) const;
  Status put(const Task& task, nlohmann::json record);
  Status put(const std::string& part, const std::string& name, nlohmann::json value);
  const nlohmann::json& document() const { return document_; }

 private:
  Status write() const;
  std::string file_;
  nlohmann::json document_;
};

// Of a document, for one application, way and share.
std::vector<nlohmann::json> records(const nlohmann::json& document, const std::string& app,
                                    const std::string& configuration, unsigned share);
// Median of a member over the repetitions that have it.
std::optional<double> median_of(const nlohmann::json& document, const std::string& app,
                                const std::string& configuration, unsigned share, const char* member);

// Runs that failed, and applications that did not compute the same in every way.
std::vector<std::string> problems_of(const nlohmann::json& document);
// Runs that were cut off or killed for want of memory, or had more near memory than their share: there is a least
// amount.
std::vector<std::string> notes_of(const nlohmann::json& document);

}  // namespace farside::bench
