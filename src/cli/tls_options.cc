#include "cli/tls_options.h"

namespace farside::cli {

void add_tls_option(Command& command, TlsArguments* arguments) {
  add_table_option(command, &arguments->given, *find_option("--tls"), false);
}

Status TlsArguments::read() {
  constexpr const char* kNoVariables[] = {nullptr};
  Options options;
  Status read = read_options(kNoVariables, given, &options);
  static_cast<TlsSettings&>(*this) = tls_settings(options);
  required = options.require_tls;
  verify_clients = options.tls_verify_clients;
  return read;
}

std::string with_pool_scheme(const std::string& address) {
  return address.empty() || address.find("://") != address.npos ? address : "pool://" + address;
}

Status ControllerAddress::open(const std::string& text, const TlsArguments& arguments) {
  std::string address = with_pool_scheme(text);
  std::string socket;
  if (address.starts_with("pool+tls://")) {
    auto directory = PrivateDirectory::create();
    if (!directory.ok()) return directory.status();
    directory_ = std::move(*directory);
    auto relay = PrivateRelay::start(*directory_, arguments);
    if (!relay.ok()) return relay.status();
    relay_ = std::move(*relay);
    socket = relay_->socket();
  }
  auto parsed = remote::parse_address(address.c_str(), {.tls = socket.c_str()});
  if (!parsed.ok()) return parsed.status();
  if (!parsed->is_pool)
    return Status::error(EINVAL, "{} is not the address of a controller; write HOST:PORT or pool+tls://HOST:PORT",
                         text);
  address_ = *parsed;
  return remote::check_plain_text(address_,
                                  arguments.required ? remote::PlainText::kRefused : remote::PlainText::kReported);
}

}  // namespace farside::cli
