// Firmware of a RoverC (M5StickC or M5StickC Plus on the RoverC base): authenticated motor commands
// over UDP, with a watchdog. Rules and packet format: gate.h; docs/robots.md has the whole picture.
//
// Build: Arduino IDE or arduino-cli with the ESP32 boards package and the library M5StickCPlus (for
// an M5StickC change the include to <M5StickC.h>). Copy secrets.example.h to secrets.h first.
//
// Safety, in this order: no clock, no driving; only authentic, fresh, rising packets count; silence
// of 0.25 s switches the motors off, and so does a lost network; the hardware watchdog restarts the
// board if this loop hangs for a second, and setup() switches the motors off.
#include <M5StickCPlus.h>
#include <WiFi.h>
#include <WiFiUdp.h>
#include <Wire.h>
#include <esp_task_wdt.h>
#include <mbedtls/md.h>
#include <sys/time.h>

#include "gate.h"
#include "secrets.h"

const uint8_t ROVER_ADDRESS = 0x38, MOTOR_REGISTERS = 0x00;
const int SDA_PIN = 0, SCL_PIN = 26;
const uint64_t STATUS_US = 100000;
const int64_t FIRST_VALID_SECOND = 1704067200;  // 2024: before the clock is set it shows 1970

WiFiUDP udp;
ssmarl::Receiver receiver = {};
uint8_t key[32];
bool clock_set = false;
IPAddress station;
uint16_t station_port = 0;
uint64_t reported_us = 0, status_counter = 0;

uint64_t now_us() {
  struct timeval now;
  gettimeofday(&now, nullptr);
  return (uint64_t)now.tv_sec * 1000000ull + now.tv_usec;
}

void write_motors(const int8_t motors[4]) {
  Wire.beginTransmission(ROVER_ADDRESS);
  Wire.write(MOTOR_REGISTERS);
  for (int i = 0; i < 4; i++) Wire.write((uint8_t)motors[i]);
  Wire.endTransmission();
}

void mac_of(const uint8_t* head, uint8_t mac[32]) {
  mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), key, sizeof key, head,
                  ssmarl::HEADER_BYTES, mac);
}

bool read_key() {
  if (strlen(KEY) != 64) return false;
  for (int i = 0; i < 32; i++) {
    char* end = nullptr;
    const char digits[3] = {KEY[2 * i], KEY[2 * i + 1], 0};
    key[i] = strtoul(digits, &end, 16);
    if (end != digits + 2) return false;
  }
  return true;
}

void setup() {
  M5.begin();
  Wire.begin(SDA_PIN, SCL_PIN);
  const int8_t off[4] = {0, 0, 0, 0};
  write_motors(off);
  M5.Lcd.setRotation(3);
  if (!read_key()) {
    M5.Lcd.print("bad key");
    while (true) delay(1000);
  }
  WiFi.mode(WIFI_STA);
  WiFi.setSleep(false);
  WiFi.begin(WIFI_NAME, WIFI_PASSWORD);
  configTime(0, 0, TIME_SERVER);
  udp.begin(PORT);
  receiver.vehicle = VEHICLE;
#if ESP_IDF_VERSION_MAJOR >= 5
  const esp_task_wdt_config_t watchdog = {1000, 0, true};
  esp_task_wdt_reconfigure(&watchdog);
#else
  esp_task_wdt_init(1, true);
#endif
  esp_task_wdt_add(nullptr);
}

void take_packets(uint64_t now) {
  uint8_t data[ssmarl::PACKET_BYTES + 1], mac[32];
  for (int i = 0; i < 16; i++) {  // a flood must not hold up the watchdog below
    const int waiting = udp.parsePacket();
    if (waiting <= 0) return;
    const int length = udp.read(data, sizeof data);
    if (waiting != (int)ssmarl::PACKET_BYTES || length != waiting || !clock_set) continue;
    mac_of(data, mac);
    if (ssmarl::receive(receiver, data, length, mac, now)) {
      station = udp.remoteIP();
      station_port = udp.remotePort();
    }
  }
}

void report(uint64_t now) {
  if (station_port == 0 || now - reported_us < STATUS_US) return;
  reported_us = now;
  status_counter = status_counter + 1 > now ? status_counter + 1 : now;
  uint8_t data[ssmarl::PACKET_BYTES], mac[32];
  const float volts = M5.Axp.GetBatVoltage();
  ssmarl::write_status(receiver, status_counter, now, (uint16_t)(volts * 1000), data);
  mac_of(data, mac);
  memcpy(data + ssmarl::HEADER_BYTES, mac, ssmarl::MAC_BYTES);
  udp.beginPacket(station, station_port);
  udp.write(data, sizeof data);
  udp.endPacket();
}

void loop() {
  esp_task_wdt_reset();
  const uint64_t now = now_us();
  if (!clock_set && (int64_t)(now / 1000000) > FIRST_VALID_SECOND) {
    clock_set = true;
    receiver.started_us = now;
  }
  take_packets(now);
  int8_t motors[4];
  ssmarl::command(receiver, now_us(), motors);
  write_motors(motors);
  if (clock_set) report(now);
  delay(2);
}
