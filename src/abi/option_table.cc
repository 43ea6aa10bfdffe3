// The table of options, in the order of the help. A new option is a row here, and the field of `Options` that it sets.
// The columns are described in options.h. scripts/option_tables.py reads them for the tables of the documents, so each
// is written as a literal.
#include "abi/option_values.h"

namespace farside {
namespace {

constexpr OptionRow kRows[] = {
    {"--local", "FARSIDE_LOCAL", "SIZE|SHARE|auto", "auto",
     "8M or more, a share of its largest size so far, up to 100%, auto or auto:MIN-MAX", Scope::kProgram,
     set_size_or_share<&Options::local>, "near memory of the program's heap; auto follows what --slowdown needs"},
    {"--slowdown", "FARSIDE_SLOWDOWN", "PERCENT", "10%", "1 to 1000 percent", Scope::kProgram,
     set_percent<&Options::slowdown>, "with --local auto, how much longer the program may take than with all near"},
    {"--far", "FARSIDE_FAR", "ADDRESS,...", "a server is started for this run",
     "tcp://HOST:PORT, tls://HOST:PORT, ucx://HOST:PORT, shm://SOCKET, pool://HOST:PORT, pool+tls://HOST:PORT or "
     "file:/PATH?size=64G",
     Scope::kBoth, set_form<&Options::far_address>,
     "memory servers, separated by commas; or a pool's controller; or a file or block device of this machine"},
    {"--replicas", "FARSIDE_REPLICAS", "N", "1", "1 to 16", Scope::kBoth, set_number<&Options::replicas>,
     "memory servers that store each page; all but one may fail"},
    {"--far-memory", "FARSIDE_FAR_MEMORY", "SIZE", "half of this machine's RAM", "16M or more", Scope::kLauncher,
     set_size<&Options::far_memory>, "memory that the server started for this run lends"},
    {"--offload", "FARSIDE_OFFLOAD", "", "off", "on or off", Scope::kLauncher, set_switch<&Options::offload>,
     "the server started for this run executes functions of the program (see farside/offload.hpp)"},
    {"--patience", "FARSIDE_PATIENCE", "SECONDS", "25", "0.1 to 29", Scope::kBoth, set_seconds<&Options::patience_ns>,
     "seconds to wait for a memory server that does not respond"},
    {"--token-file", "FARSIDE_TOKEN_FILE", "FILE", "", "", Scope::kLauncher, set_text<&Options::token_file>,
     "file whose first line is the servers' secret"},
    {"--tls", "FARSIDE_TLS", "KEY=VALUE,...", "", "", Scope::kLauncher, nullptr,
     "certificates of connections over TLS, as in ca=ca.pem,required"},
    {"--tls ca", "FARSIDE_TLS ca", "FILE", "the system's", "", Scope::kLauncher, set_text<&Options::tls_ca>,
     "PEM file of the authorities that are trusted"},
    {"--tls cert", "FARSIDE_TLS cert", "FILE", "", "", Scope::kLauncher, set_text<&Options::tls_cert>,
     "PEM file of this side's certificate"},
    {"--tls key", "FARSIDE_TLS key", "FILE", "", "", Scope::kLauncher, set_text<&Options::tls_key>,
     "PEM file of its private key"},
    {"--tls name", "FARSIDE_TLS name", "NAME", "the host in the address", "", Scope::kLauncher,
     set_text<&Options::tls_name>, "name in the certificate of the other side"},
    {"--tls required", "FARSIDE_TLS required", "", "off", "on or off", Scope::kBoth, set_switch<&Options::require_tls>,
     "refuse connections to other hosts that are not encrypted"},
    {"--tls verify-clients", "FARSIDE_TLS verify-clients", "", "off", "on or off", Scope::kServer,
     set_switch<&Options::tls_verify_clients>, "farside serve: require certificates of clients, of an authority in ca"},
    {"--fault", "FARSIDE_FAULT", "MODE", "auto", "auto, signal or handler", Scope::kProgram, set_word<&Options::fault>,
     "how page faults are served", true},
    {"--huge", "FARSIDE_HUGE", "USE", "auto", "auto, always or never", Scope::kProgram, set_word<&Options::huge>,
     "use of 2 MiB pages, for streams and where the kernel would use them, for all large blocks, or for none"},
    {"--stats", "FARSIDE_STATS", "json:FILE", "", "json:FILE", Scope::kLauncher, set_form<&Options::stats>,
     "file to write the run's statistics to"},
    {"--metrics", "FARSIDE_METRICS", "PLACE", "", "HOST:PORT or file:PATH", Scope::kLauncher,
     set_form<&Options::metrics>,
     "address to serve the run's metrics at, for Prometheus, or file to write them to every 5 s, for the node "
     "exporter"},
    {"--timeline", "FARSIDE_TIMELINE", "FILE", "", "", Scope::kLauncher, set_text<&Options::timeline>,
     "file for a picture (SVG) of near memory, far memory, budget and pressure over time"},
    {"--quiet", "FARSIDE_QUIET", "", "off", "on or off", Scope::kBoth, set_switch<&Options::quiet>,
     "print nothing but errors"},
    {"--verbose", "FARSIDE_VERBOSE", "", "off", "on or off", Scope::kLauncher, set_switch<&Options::verbose>,
     "print all that the counters say when the program has ended, in place of four lines"},
    {"--tune", "FARSIDE_TUNE", "KEY=VALUE,...", "", "", Scope::kBoth, nullptr,
     "settings that few runs need; farside run --help-tune lists them"},
    {"--tune log", "FARSIDE_TUNE log", "LEVEL", "warning", "error, warning, info or debug", Scope::kBoth,
     set_word<&Options::log>, "least severe messages to print"},
    {"--tune core", "FARSIDE_TUNE core", "CONTENT", "near", "near, all or none", Scope::kBoth, set_word<&Options::core>,
     "what core dumps have of far memory; none: no core is written"},
    {"--tune policy", "FARSIDE_TUNE policy", "ORDER", "2q", "fifo, lru, priority or 2q", Scope::kProgram,
     set_word<&Options::policy>, "which pages are evicted first"},
    {"--tune evictors", "FARSIDE_TUNE evictors", "N", "one for every four processors", "1 to 8", Scope::kProgram,
     set_number<&Options::evictors>, "maximum number of threads that evict pages"},
    {"--tune prefetch", "FARSIDE_TUNE prefetch", "SWITCH", "on", "on or off", Scope::kProgram,
     set_switch<&Options::prefetch>, "fetch ahead of sequential and strided access"},
    {"--tune writeback", "FARSIDE_TUNE writeback", "UNIT", "page", "auto, page or line", Scope::kProgram,
     set_word<&Options::writeback>, "what of a changed page is written back; auto measures what costs less"},
    {"--tune paths", "FARSIDE_TUNE paths", "PATH", "hybrid", "hybrid, page or object", Scope::kProgram,
     set_word<&Options::paths>, "how far objects are fetched"},
    {"--tune compress", "FARSIDE_TUNE compress", "CODEC", "auto", "off, lz4, zstd or auto", Scope::kLauncher,
     set_word<&Options::compress>,
     "how the server started for this run compresses pages that are not used; not with --offload"},
    {"--tune space", "FARSIDE_TUNE space", "SIZE", "256G", "64M to 16T", Scope::kProgram,
     set_size<&Options::space, 16 * kMiB>, "addresses reserved for far memory"},
    {"--tune ucx", "FARSIDE_TUNE ucx", "TRANSPORT,...", "ib", "", Scope::kLauncher, set_text<&Options::ucx>,
     "transports of UCX for ucx:// addresses, as in UCX_TLS; ib: network cards"},
    {"FARSIDE_TRACE", "FARSIDE_TRACE", "FILE", "", "", Scope::kInternal, set_text<&Options::trace>,
     "file for each process's recorded faults, from farside trace"},
    {"FARSIDE_SAMPLE", "FARSIDE_SAMPLE", "FILE", "", "", Scope::kInternal, set_text<&Options::sample>,
     "begin of the names of files for each process's samples of its pages, from farside plan"},
};

}  // namespace

std::span<const OptionRow> option_rows() { return kRows; }

}  // namespace farside
