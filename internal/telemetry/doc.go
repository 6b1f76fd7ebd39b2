// Package telemetry sends metrics and spans to an OpenTelemetry collector (OTLP by gRPC
// or HTTP).
//
// A collector that is down, slow or refuses never holds up anybody: metrics are
// gathered and sent by one goroutine, spans wait in a bounded queue for another one,
// and what does not fit is dropped. Each attempt has a time-out and is not repeated.
// What was sent, failed or dropped is counted (hardpoint_otlp_*), and the log says why
// at most once a minute.
package telemetry
