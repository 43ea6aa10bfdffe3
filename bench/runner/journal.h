// The results of a benchmark that runs, in a file with a line for each, so that a run of hours that was stopped goes on
// where it was. The first line is what they were measured with: the settings and the commit.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace farside::bench {

class Journal {
 public:
  // Reads the file, or creates it. EINVAL if it is of a run with other settings or of another commit. "": no file.
  static Result<Journal> open(const std::string& path, const nlohmann::json& measured_with);

  // The known result of a measurement; nullptr if there is none.
  const nlohmann::json* find(const std::string& measurement) const;
  Status add(const std::string& measurement, const nlohmann::json& result);

 private:
  std::string path_;
  std::map<std::string, nlohmann::json> results_;
};

}  // namespace farside::bench
