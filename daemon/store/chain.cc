#include "daemon/store/chain.h"

#include <openssl/evp.h>

#include <utility>

namespace agentmon {
namespace {

constexpr size_t kPartBytes = 8 + 1 + 1 + 4 + 8 + kHashBytes;
constexpr size_t kFlushBytes = 16 << 10;

void Append64(uint64_t value, std::string* out) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  out->append(bytes, sizeof(bytes));
}

uint64_t Read(absl::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return value;
}

// With its length before it, so that two strings cannot be cut differently.
void AppendBytes(absl::string_view bytes, std::string* out) {
  Append64(bytes.size(), out);
  out->append(bytes.data(), bytes.size());
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

void Sha256::Add(absl::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

std::string Sha256::Finish() {
  std::string hash(kHashBytes, '\0');
  EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(hash.data()), nullptr);
  return hash;
}

PartHash::PartHash(absl::string_view session_id) { AppendBytes(session_id, &buffer_); }

void PartHash::Add(const RowView& row, absl::string_view exe) {
  Append64(row.seq, &buffer_);
  Append64(static_cast<uint64_t>(row.wall_ns), &buffer_);
  Append64(static_cast<uint64_t>(row.kind), &buffer_);
  Append64(static_cast<uint64_t>(row.pid), &buffer_);
  Append64(static_cast<uint64_t>(row.decision) << 1 | (row.enforced ? 1 : 0), &buffer_);
  AppendBytes(exe, &buffer_);
  AppendBytes(row.data, &buffer_);
  if (buffer_.size() < kFlushBytes) return;
  hash_.Add(buffer_);
  buffer_.clear();
}

std::string PartHash::Finish() {
  hash_.Add(buffer_);
  return hash_.Finish();
}

std::string BatchHash(absl::string_view previous_hash, const Batch& batch) {
  std::string content;
  AppendBytes(previous_hash, &content);
  Append64(batch.number, &content);
  Append64(batch.first_seq, &content);
  Append64(batch.last_seq, &content);
  Append64(static_cast<uint64_t>(batch.min_ns), &content);
  Append64(static_cast<uint64_t>(batch.max_ns), &content);
  for (const Part& part : batch.parts) {
    Append64(static_cast<uint64_t>(part.session), &content);
    Append64(part.kept ? 1 : 0, &content);
    Append64(part.rows, &content);
    Append64(part.bytes, &content);
    AppendBytes(part.hash, &content);
  }
  Sha256 hash;
  hash.Add(content);
  return hash.Finish();
}

std::string EncodeParts(const std::vector<Part>& parts) {
  std::string out;
  out.reserve(parts.size() * kPartBytes);
  for (const Part& part : parts) {
    Append64(static_cast<uint64_t>(part.session), &out);
    out += static_cast<char>(part.kept);
    out += static_cast<char>(part.pruned);
    for (int i = 0; i < 4; ++i) out += static_cast<char>(part.rows >> (8 * i));
    Append64(part.bytes, &out);
    out += part.hash;
  }
  return out;
}

absl::StatusOr<std::vector<Part>> DecodeParts(absl::string_view bytes) {
  if (bytes.size() % kPartBytes != 0) return absl::DataLossError("list of parts is cut");
  std::vector<Part> parts(bytes.size() / kPartBytes);
  for (size_t i = 0, at = 0; i < parts.size(); ++i, at += kPartBytes) {
    parts[i].session = static_cast<int64_t>(Read(bytes, at, 8));
    parts[i].kept = bytes[at + 8] != 0;
    parts[i].pruned = bytes[at + 9] != 0;
    parts[i].rows = static_cast<uint32_t>(Read(bytes, at + 10, 4));
    parts[i].bytes = Read(bytes, at + 14, 8);
    parts[i].hash = std::string(bytes.substr(at + 22, kHashBytes));
  }
  return parts;
}

}  // namespace agentmon
