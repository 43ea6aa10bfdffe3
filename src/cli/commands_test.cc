#include "cli/commands.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

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
  EXPECT_EQ(document["commands"].size(), 12u);
  EXPECT_EQ(document["commands"][0]["name"], "run");
  EXPECT_NE(document["commands"][0]["footer"].get<std::string>().find("Examples:\n  "), std::string::npos);
  std::map<std::string, nlohmann::json> options;
  for (const nlohmann::json& option : document["commands"][0]["options"]) options[option["names"].back()] = option;
  EXPECT_EQ(options["--fault"]["choices"], nlohmann::json({"auto", "signal", "handler"}));
  EXPECT_EQ(options["--local"]["value"], "SIZE|SHARE|auto");
  EXPECT_TRUE(options["--local"]["choices"].empty());
  EXPECT_TRUE(options["--stats"]["choices"].empty());
  EXPECT_EQ(options["--quiet"]["value"], "");
  for (const nlohmann::json& variable : document["environment"]) EXPECT_TRUE(options.contains(variable["flag"]));
  for (const nlohmann::json& key : document["keys"]) EXPECT_TRUE(options.contains(key["option"]));
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

TEST(CommandsTest, MisspeltOptionsAndCommandsNameTheNearest) {
  for (auto [line, expected] :
       {std::pair{std::vector<const char*>{"rnu"}, "farside has no command rnu; did you mean run?"},
        {{"rnu", "--", "true"}, "did you mean run?"},
        {{"walk"}, "farside --help lists them"},
        {{"pool", "statsu"}, "did you mean status?"},
        {{"run", "--lokal", "1G", "--", "true"}, "--lokal is not an option of farside run; did you mean --local?"},
        {{"run", "--polcy=lru", "--", "true"}, "did you mean --tune policy=VALUE?"},
        {{"run", "--tls-ca", "x", "--", "true"}, "did you mean --tls ca=VALUE?"},
        {{"run", "--require", "--", "true"}, "did you mean --tls required?"},
        {{"run", "--talkative", "--", "true"}, "farside run --help lists them"},
        {{"serve", "--memry", "4G"}, "did you mean --memory?"},
        {{"pool", "status", "--controler", "x:1"}, "did you mean --controller?"},
        {{"run", "--tune", "polcy=lru", "--", "true"}, "did you mean policy?"}}) {
    Outcome outcome = farside(line);
    EXPECT_EQ(outcome.exit_status, kExitUsage);
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
  }
}

TEST(CommandsTest, MissingDashesAreNamed) {
  for (auto [line, expected] :
       {std::pair{std::vector<const char*>{"run", "sort", "x"}, "put -- before the program: farside run -- sort x"},
        {{"run", "--local", "25%", "sort", "-n", "x"}, "farside run --local 25% -- sort -n x"}}) {
    EXPECT_NE(farside(line).err.find(expected), std::string::npos) << farside(line).err;
  }
}

TEST(CommandsTest, ValuesOutOfRangeNameTheRange) {
  for (auto [line, expected] :
       {std::pair{std::vector<const char*>{"serve", "--workers", "99"}, "'99' is not valid; use 1 to 64"},
        {{"serve", "--workers", "x"}, "'x' is not valid; use 1 to 64"},
        {{"serve", "--log", "loud"}, "'loud' is not valid; use error, warning, info or debug"},
        {{"serve", "--memory", "0"}, "--memory=0 is not valid; use 16.0 MiB to "},
        {{"serve", "--memory", "abc"}, "--memory=abc is not valid; use 16.0 MiB to "},
        {{"serve", "--overflow", "x"}, "--overflow=x is not valid; use PATH:SIZE"},
        {{"serve", "--quota", "x"}, "--quota=x is not valid; use a size"},
        {{"serve", "--offload-memory", "0"}, "--offload-memory=0 is not valid; use a size"},
        {{"serve", "--offload-code", "x"}, "--offload-code=x is not valid; use a size"},
        {{"serve", "--listen", "7301"}, "--listen=7301 is not valid; use HOST:PORT"},
        {{"serve", "--metrics", "9170"}, "--metrics=9170 is not valid; use HOST:PORT"},
        {{"serve", "--pool", "10.0.0.1"}, "--pool: 'pool://10.0.0.1' has no valid port"},
        {{"serve", "--address", "10.0.0.1:1"}, "--address: '10.0.0.1:1' is not an address of a memory server"},
        {{"serve", "--zone", "a b"}, "--zone 'a b': not 1 to 31 printable characters"},
        {{"serve", "--token-file", "/nonexistent"}, "cannot read the token file /nonexistent"},
        {{"serve", "--tls", "cert=/nonexistent,key=/nonexistent"}, "/nonexistent"},
        {{"serve", "--zone", "a", "--memory", "64M", "--listen", "127.0.0.1:0"}, "--zone is for a server of a pool"},
        {{"serve", "--memory", "64M"}, "no address to listen on"},
        {{"serve", "--memory", ""}, "the value is empty"},
        {{"serve", "--memory="}, "the value is empty"},
        {{"ctl", "-5"}, "-5"},
        {{"ctl", "0"}, "use a number above 0"},
        {{"run", "--far", "", "--", "true"}, "--far has an empty value; give tcp://HOST:PORT"},
        {{"run", "--tune", "evictors=99", "--", "true"}, "--tune evictors=99 is not valid; use 1 to 8"},
        {{"run", "--patience", "100", "--", "true"}, "--patience=100 is not valid; use 0.1 to 29"}}) {
    Outcome outcome = farside(line);
    EXPECT_EQ(outcome.exit_status, kExitUsage);
    EXPECT_TRUE(is_one_error_line(outcome.err)) << outcome.err;
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
  }
}

TEST(CommandsTest, HelpOfTuneListsItsKeys) {
  Outcome help = farside({"run", "--help-tune"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_NE(help.out.find("policy=ORDER"), std::string::npos) << help.out;
}

}  // namespace
}  // namespace farside::cli
