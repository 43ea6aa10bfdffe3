// libFuzzer target for text from outside: requests to the metrics port, addresses, and values of options. The first
// byte of the input selects which.
#include <cstdlib>
#include <string>

#include "abi/options.h"
#include "cli/metrics_http.h"

namespace {

void require(bool condition) {
  if (!condition) abort();
}

void fuzz_http(std::string_view text) {
  farside::cli::MetricsPages pages = {[] { return std::string("metrics"); }, [] { return farside::Status(); }};
  std::string reply = farside::cli::http_reply(text, pages);
  require(reply.starts_with("HTTP/1.1 ") && reply.find("\r\n\r\n") != reply.npos);
}

void fuzz_address(std::string_view text) {
  auto parsed = farside::cli::parse_host_port("--listen", std::string(text));
  if (parsed.ok()) require(!parsed->port.empty() && text.ends_with(parsed->port));
}

void fuzz_option(std::string_view text) {
  auto rows = farside::option_rows();
  if (text.empty()) return;
  farside::Options options;
  const auto& row = rows[static_cast<unsigned char>(text[0]) % rows.size()];
  farside::Status status = set_option(&options, row.variable, text.substr(1));
  require(status.ok() || status.code() == EINVAL);
  double share = options.local.share;
  require(share == farside::SizeOrShare::kAutomatic || (share >= 0 && share <= 1));
  require(options.far_address[sizeof options.far_address - 1] == 0 && options.trace[sizeof options.trace - 1] == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) fuzz_http(text);
  if (data[0] % 3 == 1) fuzz_address(text);
  if (data[0] % 3 == 2) fuzz_option(text);
  return 0;
}
