// Copy to secrets.h, fill in, and keep it to yourself. One key per vehicle: `ssmarl robots key FILE`
// writes 64 hexadecimal digits; put the same digits here and the file on the station.
#pragma once
#include <stdint.h>

const char* const WIFI_NAME = "lab";
const char* const WIFI_PASSWORD = "change me";
const char* const TIME_SERVER = "192.168.0.2";  // NTP; the station's clock must be the same
const uint16_t VEHICLE = 1;                     // its id in fleet.json
const uint16_t PORT = 4210;
const char* const KEY = "0000000000000000000000000000000000000000000000000000000000000000";
