// What a vehicle obeys: the rules of ssmarl/robots/packets.py (Gate) and receiver.py (Receiver).
// Plain C++ without any input or output, so that a test on a computer compares it with them.
//
//   kind 2 | vehicle 2 | counter 8 | microseconds 8 | payload 4 | MAC 16      40 bytes, big-endian
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace ssmarl {

const uint16_t COMMAND = 0x5353, STOP = 0x5354, STATUS = 0x5355;
const size_t HEADER_BYTES = 24, MAC_BYTES = 16, PACKET_BYTES = HEADER_BYTES + MAC_BYTES;
const uint64_t WINDOW_US = 500000;   // largest difference between a packet's time and our clock
const uint64_t SILENCE_US = 250000;  // without a command for so long, motors are switched off
const uint8_t SILENT = 1, STOPPED = 2;  // flags of a status

struct Receiver {
  uint16_t vehicle;
  uint64_t started_us;  // when this vehicle started, by its clock
  uint64_t last;        // highest counter accepted so far
  bool any;             // whether there was one
  uint64_t heard_us;    // when that was
  bool stopped;         // by a stop packet: until restart
  int8_t motors[4];
};

inline uint64_t read_number(const uint8_t* bytes, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; i++) value = value << 8 | bytes[i];
  return value;
}

inline void write_number(uint8_t* bytes, uint64_t value, int count) {
  for (int i = count - 1; i >= 0; i--, value >>= 8) bytes[i] = value & 0xff;
}

// Takes as long for every difference, so that timing tells nothing.
inline bool same_mac(const uint8_t* one, const uint8_t* other) {
  uint8_t difference = 0;
  for (size_t i = 0; i < MAC_BYTES; i++) difference |= one[i] ^ other[i];
  return difference == 0;
}

// Take a packet. `mac` is HMAC-SHA256 of its first 24 bytes with the vehicle's key, of which 16
// bytes count. Returns whether the packet was accepted.
inline bool receive(Receiver& self, const uint8_t* data, size_t length, const uint8_t* mac,
                    uint64_t now_us) {
  if (length != PACKET_BYTES || !same_mac(data + HEADER_BYTES, mac)) return false;
  const uint16_t kind = read_number(data, 2);
  const uint64_t counter = read_number(data + 4, 8), time_us = read_number(data + 12, 8);
  if (kind != COMMAND && kind != STOP) return false;
  if (read_number(data + 2, 2) != self.vehicle) return false;
  if (self.any && counter <= self.last) return false;
  if ((time_us > now_us ? time_us - now_us : now_us - time_us) > WINDOW_US) return false;
  // What was sent before we started may be stamped ahead of our clock by the window.
  if (time_us < self.started_us + WINDOW_US) return false;
  self.last = counter;
  self.any = true;
  self.heard_us = now_us;
  if (kind == STOP) self.stopped = true;
  for (int i = 0; i < 4; i++) {
    const int8_t wanted = (int8_t)data[20 + i];
    self.motors[i] = wanted < -127 ? -127 : wanted;
  }
  return true;
}

inline bool silent(const Receiver& self, uint64_t now_us) {
  return !self.any || now_us < self.heard_us || now_us - self.heard_us > SILENCE_US;
}

// What the motors get now.
inline void command(const Receiver& self, uint64_t now_us, int8_t motors[4]) {
  const bool off = self.stopped || silent(self, now_us);
  for (int i = 0; i < 4; i++) motors[i] = off ? 0 : self.motors[i];
}

// The first 24 bytes of a status packet; the caller adds the MAC.
inline void write_status(const Receiver& self, uint64_t counter, uint64_t now_us,
                         uint16_t millivolts, uint8_t* head) {
  write_number(head, STATUS, 2);
  write_number(head + 2, self.vehicle, 2);
  write_number(head + 4, counter, 8);
  write_number(head + 12, now_us, 8);
  write_number(head + 20, millivolts, 2);
  head[22] = (silent(self, now_us) ? SILENT : 0) | (self.stopped ? STOPPED : 0);
  head[23] = 0;
}

}  // namespace ssmarl
