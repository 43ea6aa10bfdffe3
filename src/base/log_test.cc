#include "base/log.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace farside {
namespace {

// A line as it is written in a format.
std::string line_of(LogFormat format, LogLevel level, LogFields fields, const std::string& message) {
  ::testing::internal::CaptureStderr();
  set_log_format(format);
  log_with(level, fields, "{}", message);
  set_log_format(LogFormat::kPlain);
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogTest, Formats) {
  LogFields fields = {{"peer", "10.0.0.1:7"}, {"region", 3u}};
  EXPECT_EQ(line_of(LogFormat::kPlain, LogLevel::kWarning, fields, "gone"),
            "farside: warning: gone peer=10.0.0.1:7 region=3\n");
  EXPECT_TRUE(std::regex_match(
      line_of(LogFormat::kText, LogLevel::kError, fields, "gone"),
      std::regex(
          "farside: 20\\d\\d-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z error: gone peer=10.0.0.1:7 region=3\n")));
  EXPECT_TRUE(std::regex_match(
      line_of(LogFormat::kJson, LogLevel::kError, fields, "a \"b\" \\ \n c"),
      std::regex("\\{\"time\":\"20[-:.TZ0-9]{22}\",\"level\":\"error\",\"peer\":\"10.0.0.1:7\",\"region\":3,"
                 "\"message\":\"a \\\\\"b\\\\\" \\\\\\\\ \\\\u000a c\"\\}\n")));
}

TEST(LogTest, LongLinesAreCutAndComplete) {
  std::string quotes(5000, '"');
  std::string line = line_of(LogFormat::kJson, LogLevel::kError, {}, quotes);
  EXPECT_LE(line.size(), 1024u);
  EXPECT_TRUE(line.ends_with("\\\"\"}\n"));
  EXPECT_EQ(line_of(LogFormat::kText, LogLevel::kError, {}, quotes).size(), 1024u - 1);
}

TEST(LogTest, LessSevereMessagesAreDropped) { EXPECT_EQ(line_of(LogFormat::kPlain, LogLevel::kInfo, {}, "x"), ""); }

}  // namespace
}  // namespace farside
