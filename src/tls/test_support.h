// Certificates for tests, made by the openssl command line.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "tls/credentials.h"

namespace farside::tls {

// A folder with two authorities, "ca" and "other", and the certificates that the first one has signed: "server" for
// 127.0.0.1 and localhost, "expired" for 127.0.0.1, "elsewhere" for another host, and "client". "stranger" is a client
// of the other authority. NAME.pem is the certificate, NAME.key its key.
class TestCertificates {
 public:
  TestCertificates() {
    char name[] = "/tmp/farside-tls-XXXXXX";
    folder_ = mkdtemp(name);
    for (const char* authority : {"ca", "other"}) run(request(authority, "") + " -days 30");
    sign("server", "ca", "subjectAltName=IP:127.0.0.1,DNS:localhost");
    sign("elsewhere", "ca", "subjectAltName=DNS:elsewhere.example");
    sign("client", "ca", "extendedKeyUsage=clientAuth");
    sign("stranger", "other", "extendedKeyUsage=clientAuth");
    run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=server -keyout " +
        path("expired.key") +
        " -addext subjectAltName=IP:127.0.0.1 | openssl x509 -req -copy_extensions copy -days -1 -CA " +
        path("ca.pem") + " -CAkey " + path("ca.key") + " -CAcreateserial -out " + path("expired.pem"));
  }
  ~TestCertificates() { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& file) const { return folder_ + "/" + file; }
  Files files(const std::string& name, const std::string& authority = "ca") const {
    if (name.empty()) return {"", "", path(authority + ".pem")};
    return {path(name + ".pem"), path(name + ".key"), path(authority + ".pem")};
  }

 private:
  std::string request(const std::string& name, const std::string& options) const {
    return "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + name + " -keyout " +
           path(name + ".key") + " -out " + path(name + ".pem") + options;
  }
  void sign(const std::string& name, const std::string& authority, const std::string& extension) const {
    run(request(name, " -CA " + path(authority + ".pem") + " -CAkey " + path(authority + ".key")) +
        " -addext basicConstraints=CA:FALSE -addext " + extension + " -days 30");
  }
  static void run(const std::string& command) {
    EXPECT_EQ(std::system(("(" + command + ") >/dev/null 2>&1").c_str()), 0) << command;
  }

  std::string folder_;
};

// Tests whose connections may break, with certificates that are made once for all of them.
class WithCertificates : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    signal(SIGPIPE, SIG_IGN);
    certificates = new TestCertificates;
  }
  static void TearDownTestSuite() {
    delete certificates;
    certificates = nullptr;
  }

  static inline TestCertificates* certificates = nullptr;
};

inline std::shared_ptr<const Credentials> server_context(const Files& files, bool verify_clients = false) {
  auto credentials = Credentials::for_server(files, verify_clients);
  EXPECT_TRUE(credentials.ok()) << credentials.status().text();
  return *credentials;
}

inline std::shared_ptr<const Credentials> client_context(const Files& files) {
  auto credentials = Credentials::for_client(files);
  EXPECT_TRUE(credentials.ok()) << credentials.status().text();
  return *credentials;
}

}  // namespace farside::tls
