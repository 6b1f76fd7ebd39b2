// Package send is the send behaviour: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310)
// and SEND_BATCH_MESSAGE (320).
//
// Requests of one read of a connection are validated and collected, then
// encoded straight into a reservation of the open batch (package combine). No
// object is made per message: what the answer needs is a ticket of a few words,
// and the unique id is read back from the encoded record.
//
// The order of checks and the codes are those of request-code 10 in RocketMQ's
// SendMessageProcessor. Every refusal before ordering is answered with a code
// that tells official clients whether to try again: 14 (try another broker) for
// what passes, 13, 16, 17, 29 for what does not.
package send
