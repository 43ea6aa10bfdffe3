#include "cli/commands.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "abi/options.h"
#include "cli/tools.h"

namespace farside::cli {
namespace {

struct Outcome {
  int exit_status;
  std::string out, err;
};

Outcome farside(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "farside");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  int exit_status = run_farside(static_cast<int>(arguments.size()), arguments.data());
  fflush(stdout);
  for (const OptionName& name : option_names()) unsetenv(std::string(name.variable).c_str());  // left by settle()
  return {exit_status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

bool is_one_error_line(const std::string& text) {
  return text.starts_with("farside: error: ") && text.find('\n') == text.size() - 1;
}

TEST(CommandsTest, EveryHelpHasExamples) {
  for (std::vector<const char*> line : {std::vector<const char*>{"--help"},
                                        {"run", "--help"},
                                        {"ctl", "--help"},
                                        {"serve", "--help"},
                                        {"pool", "--help"},
                                        {"doctor", "--help"}}) {
    Outcome help = farside(line);
    EXPECT_EQ(help.exit_status, 0);
    std::string command = line.size() > 1 ? line[0] : "";
    EXPECT_NE(help.out.find("Examples:\n  farside " + command), std::string::npos) << help.out;
  }
}

TEST(CommandsTest, TheDescriptionNamesCommandsOptionsAndChoices) {
  Outcome outcome = farside({"--describe"});
  EXPECT_EQ(outcome.exit_status, 0);
  auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["commands"].size(), 11u);
  EXPECT_EQ(document["commands"][0]["name"], "run");
  EXPECT_NE(document["commands"][0]["footer"].get<std::string>().find("Examples:\n  "), std::string::npos);
  std::map<std::string, nlohmann::json> options;
  for (const nlohmann::json& option : document["commands"][0]["options"]) options[option["names"].back()] = option;
  EXPECT_EQ(options["--policy"]["choices"], nlohmann::json({"2q", "fifo", "lru", "priority"}));
  EXPECT_EQ(options["--local"]["value"], "VALUE");
  EXPECT_EQ(options["--quiet"]["value"], "");
  for (const nlohmann::json& variable : document["environment"]) EXPECT_TRUE(options.contains(variable["flag"]));
}

TEST(CommandsTest, MistakesAreOneLineAndStatus2) {
  for (std::vector<const char*> line : {std::vector<const char*>{},
                                        {"walk"},
                                        {"run"},
                                        {"run", "--lokal", "1G", "--", "true"},
                                        {"run", "sort", "x"},
                                        {"run", "--local", "-3", "--", "true"},
                                        {"doctor", "x"},
                                        {"serve"}}) {
    Outcome outcome = farside(line);
    EXPECT_EQ(outcome.exit_status, kExitUsage);
    EXPECT_TRUE(is_one_error_line(outcome.err)) << outcome.err;
  }
}

TEST(CommandsTest, AToolThatIsMissingIsOneLineWithTheRemedy) {
  testing::internal::CaptureStderr();
  int exit_status = execute_tool({"/nowhere"}, "plan", {"--help"});
  std::string error = testing::internal::GetCapturedStderr();
  EXPECT_EQ(exit_status, kExitFailure);
  EXPECT_TRUE(is_one_error_line(error)) << error;
  EXPECT_NE(error.find("/nowhere/libexec/farside/farside-plan"), std::string::npos) << error;
  EXPECT_NE(error.find("install Farside again"), std::string::npos) << error;
}

TEST(CommandsTest, ToolsAreCommandsAndOthersAreNot) {
  for (const char* name : {"trace", "plan", "track", "bench"}) EXPECT_TRUE(is_tool(name)) << name;
  for (const char* name : {"run", "serve", "", "plan "}) EXPECT_FALSE(is_tool(name)) << name;
}

TEST(CommandsTest, ProgramsThatCannotRunReturnTheStatusOfAShell) {
  EXPECT_EQ(farside({"run", "--", "no-such-program-at-all"}).exit_status, 127);
  EXPECT_EQ(farside({"run", "--", "/tmp"}).exit_status, 126);
}

TEST(CommandsTest, VersionIsPrinted) {
  EXPECT_TRUE(farside({"version"}).out.starts_with("farside "));
  EXPECT_TRUE(farside({"--version"}).out.starts_with("farside "));
}

TEST(CommandsTest, TheReadmeListsEveryOption) {
  std::stringstream text;
  text << std::ifstream(FARSIDE_README).rdbuf();
  for (const OptionName& name : option_names()) {
    if (name.internal) continue;
    std::string row = fmt::format("| `{}` | `{}` | {} |", name.flag, name.variable, name.help);
    EXPECT_NE(text.str().find(row), std::string::npos) << "README.md lacks the row\n" << row;
  }
}

}  // namespace
}  // namespace farside::cli
