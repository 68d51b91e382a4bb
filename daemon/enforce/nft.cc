#include "daemon/enforce/nft.h"

#include <linux/netlink.h>
#include <nftables/libnftables.h>
#include <sys/select.h>
#include <sys/socket.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {
namespace {

// "Error: Could not process rule: Operation not permitted\nadd table ...": the rest shows our own text.
absl::Status ErrorOf(const char* text) {
  absl::string_view line = text == nullptr ? "" : text;
  line = line.substr(0, line.find('\n'));
  absl::ConsumePrefix(&line, "Error: ");
  absl::ConsumePrefix(&line, "Could not process rule: ");
  if (line.empty()) line = "no reason was given";
  const std::string message = absl::StrCat("nftables: ", line);
  if (absl::StrContains(line, "not permitted")) return absl::PermissionDeniedError(message);
  return absl::InternalError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Nft>> Nft::Create() {
  // libnftables ends the process when it gets no socket.
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
  if (!socket.valid()) return ErrnoStatus(errno, "nftables: make a netlink socket");
  // It waits for that with select(2), and ends the process where the number is too large. Its own comes next.
  if (socket.get() >= FD_SETSIZE - 1) return absl::ResourceExhaustedError("nftables: too many open files");
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0)
    return ErrnoStatus(errno, "nftables: bind a netlink socket");
  nft_ctx* context = nft_ctx_new(NFT_CTX_DEFAULT);
  if (context == nullptr) return absl::ResourceExhaustedError("nftables: no memory");
  std::unique_ptr<Nft> nft(new Nft(context));
  if (nft_ctx_buffer_output(context) != 0 || nft_ctx_buffer_error(context) != 0)
    return absl::ResourceExhaustedError("nftables: no memory");
  return nft;
}

Nft::~Nft() { nft_ctx_free(context_); }

absl::Status Nft::Run(const std::string& commands) {
  const int result = nft_run_cmd_from_buffer(context_, commands.c_str());
  (void)nft_ctx_get_output_buffer(context_);
  const char* error = nft_ctx_get_error_buffer(context_);  // both buffers are emptied by this
  return result == 0 ? absl::OkStatus() : ErrorOf(error);
}

}  // namespace agentmon
