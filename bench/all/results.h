// The results of `farside bench all` so far. The file is written after every run, so that a benchmark of hours can be
// stopped and continued.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside::bench {

inline constexpr const char* kNative = "native";
inline constexpr const char* kFar = "far";
inline constexpr const char* kPages = "pages";  // far without huge pages
inline constexpr const char* kHinted = "hinted";
inline constexpr const char* kZram = "zram";

// One run of one application.
struct Task {
  std::string app, configuration;
  unsigned share;  // percent of its memory that may be near; 100 for native
  unsigned repetition;
  std::string key() const;  // "gups/far/25/0"
};

struct TaskList {
  std::vector<std::string> apps, configurations;
  std::vector<unsigned> shares = {10, 30, 50, 70, 90, 100};
  unsigned repetitions = 3;
};
// Configurations alternate, so that drift of the machine affects all of them alike. The native run of an application is
// the first: the limits of the others depend on it. kHinted is included only for applications with hints.
std::vector<Task> tasks_of(const TaskList& list);

class Results {
 public:
  // Continues with the contents of the file, unless `fresh`. EINVAL if it was measured with other settings or is not a
  // result of this benchmark.
  static Result<Results> open(const std::string& file, const nlohmann::json& settings, bool fresh);

  // A failed run is repeated. A run that was cut off is not, and neither are its further repetitions.
  bool needs(const Task& task) const;
  Status put(const Task& task, nlohmann::json record);
  Status put(const std::string& section, const std::string& name, nlohmann::json value);
  const nlohmann::json& document() const { return document_; }

 private:
  Status write() const;
  std::string file_;
  nlohmann::json document_;
};

// The runs of one application, configuration and share.
std::vector<nlohmann::json> records(const nlohmann::json& document, const std::string& app,
                                    const std::string& configuration, unsigned share);
// Median of a member over the repetitions that have it.
std::optional<double> median_of(const nlohmann::json& document, const std::string& app,
                                const std::string& configuration, unsigned share, const char* member);

// Failed runs, and applications whose result is not the same in all configurations.
std::vector<std::string> problems_of(const nlohmann::json& document);
// Runs that were cut off, were killed for lack of memory, or had more near memory than their share because the pager
// has a minimum.
std::vector<std::string> notes_of(const nlohmann::json& document);

}  // namespace farside::bench
