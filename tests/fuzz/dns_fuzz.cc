// Any bytes as a DNS message of a program and of a server: no crash, bounded work, and what we write is
// sound.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "daemon/resolver/dns_message.h"

namespace {

using agentmon::DnsAnswer;
using agentmon::DnsRcode;
using agentmon::ReceivedQuery;

void Check(bool holds) {
  if (!holds) std::abort();
}

// The first bytes of what is written say that it answers this question.
void CheckReply(const agentmon::DnsQuery& query, const std::vector<uint8_t>& reply, size_t most) {
  Check(reply.size() >= 12 && reply.size() <= most);
  Check(reply[0] == query.id >> 8 && reply[1] == (query.id & 0xff) && (reply[2] & 0x80) != 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = absl::MakeConstSpan(data, size);
  // A question, and behind it what a server says to it.
  const size_t split = size < 2 ? size : std::min<size_t>(size, data[size - 1] * 4);
  const ReceivedQuery got = agentmon::ReadQuery(bytes.subspan(0, split));
  if (got.what == ReceivedQuery::What::kDrop) return 0;
  CheckReply(got.query,
             agentmon::WriteError(got.query, DnsRcode::kNxDomain, agentmon::DnsWhy::kBlocked, "why"), 1024);
  if (got.what != ReceivedQuery::What::kQuestion) return 0;
  Check(got.query.question.longest_label <= 63 && got.query.wire_name.size() <= 255);
  auto answer = DnsAnswer::Read(bytes.subspan(split), got.query.question);
  if (!answer.ok()) return 0;
  answer->ShortenTtls(60);
  answer->Describe(16);
  CheckReply(got.query, agentmon::WriteAnswer(got.query, *answer, 512), 512);
  const std::vector<uint8_t> written = agentmon::WriteAnswer(got.query, *answer, UINT16_MAX);
  const auto again = DnsAnswer::Read(written, got.query.question);
  if (written.size() <= agentmon::kMostAnswerBytes)
    Check(again.ok() && again->addresses().size() == answer->addresses().size());
  while (!answer->addresses().empty()) answer->Remove(answer->addresses().front().address);
  return 0;
}
