#include "launch/embedded_server.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

namespace farside {
namespace {

mode_t mode_of_parent(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(std::filesystem::path(path).parent_path().c_str(), &info), 0);
  return info.st_mode & 0777;
}

// A socket can be reached by others only by its secret name.
TEST(PrivateDirectory, IsClosedWhileASocketHasAKnownName) {
  auto directory = PrivateDirectory::create();
  ASSERT_TRUE(directory.ok()) << directory.status().text();
  for (int i = 0; i < 2; i++) {
    std::string bound = (*directory)->socket_file("listening");
    EXPECT_EQ(mode_of_parent(bound), 0700u);
    server::ServerConfig config;
    config.memory = 16 << 20;
    auto server = EmbeddedServer::start(**directory, config, false);
    ASSERT_TRUE(server.ok()) << server.status().text();
    EXPECT_EQ(mode_of_parent(bound), 0711u);
    EXPECT_FALSE(std::filesystem::exists(bound));
  }
}

}  // namespace
}  // namespace farside
