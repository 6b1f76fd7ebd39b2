// Package adminclient asks name servers and brokers for those who operate them: the
// commands of the program, and tests.
//
// A [Client] knows the name servers, of which the first that answers will do, and
// keeps one connection to each server that it asked. [Client.Brokers] finds the
// brokers that a question is for, [Each] asks all of them at once, and [Failed] says
// which did not answer: with one of two brokers down, half an answer is known, and
// the question has failed.
//
// It speaks the requests that Apache RocketMQ's brokers know, 4.9 and 5.x. What only
// Hardpoint's brokers answer says so.
package adminclient
