#include "cli/named_servers.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace farside::cli {
namespace {

TEST(NamedServersTest, OneServerUnderTwoNamesIsRefused) {
  for (const char* twice : {"tcp://127.0.0.1:7100,tcp://localhost:7100", "tcp://[::1]:7100,tcp://localhost:7100",
                            "tcp://10.0.0.1:7100,tcp://10.0.0.2:7100,tcp://10.0.0.1:7100"})
    EXPECT_NE(std::string(check_servers_differ(twice).text()).find("one server twice, as tcp://"), std::string::npos)
        << twice;
}

TEST(NamedServersTest, OtherPortsAndHostsAreOtherServers) {
  for (const char* servers :
       {"", "tcp://127.0.0.1:7100,tcp://127.0.0.2:7100", "tcp://127.0.0.1:7100,tcp://localhost:7101",
        "nonsense,nonsense", "tcp://10.0.0.1:7100,tcp://10.0.0.2:7100", "tcp://127.0.0.1:7100,shm:///tmp/a.sock"})
    EXPECT_TRUE(check_servers_differ(servers).ok()) << servers;
}

TEST(NamedServersTest, PathsOfASocketAreFollowed) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(testing::TempDir()) / ("named_servers_test." + std::to_string(getpid()));
  fs::create_directories(folder / "real");
  fs::create_directory_symlink(folder / "real", folder / "link");
  std::string there = "shm://" + (folder / "real/socket").string(), same = "shm://" + (folder / "link/socket").string();
  EXPECT_FALSE(check_servers_differ(there + "," + same).ok());
  EXPECT_TRUE(check_servers_differ(there + "," + same + "2").ok());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace farside::cli
