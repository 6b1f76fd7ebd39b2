package api

import "errors"

// ErrorID is the stable identity of an error; protocols map it to their codes.
type ErrorID string

// Identities. The comment says when; the RocketMQ response code follows in
// brackets.
const (
	// SystemError: something failed inside [1].
	SystemError ErrorID = "SYSTEM_ERROR"
	// SystemBusy: overloaded; official 4.9 clients take it as final [2].
	SystemBusy ErrorID = "SYSTEM_BUSY"
	// NotSupported: unknown request [3].
	NotSupported ErrorID = "NOT_SUPPORTED"
	// MessageIllegal: too large or malformed [13].
	MessageIllegal ErrorID = "MESSAGE_ILLEGAL"
	// ServiceNotAvailable: cannot store now; clients retry [14].
	ServiceNotAvailable ErrorID = "SERVICE_NOT_AVAILABLE"
	// NoPermission [16].
	NoPermission ErrorID = "NO_PERMISSION"
	// TopicNotExist [17].
	TopicNotExist ErrorID = "TOPIC_NOT_EXIST"
	// NotFound: no offset, no message, no key [22].
	NotFound ErrorID = "NOT_FOUND"
	// SubscriptionParseFailed [23].
	SubscriptionParseFailed ErrorID = "SUBSCRIPTION_PARSE_FAILED"
	// SubscriptionNotExist [24].
	SubscriptionNotExist ErrorID = "SUBSCRIPTION_NOT_EXIST"
	// SubscriptionNotLatest [25].
	SubscriptionNotLatest ErrorID = "SUBSCRIPTION_NOT_LATEST"
	// GroupNotExist [26].
	GroupNotExist ErrorID = "SUBSCRIPTION_GROUP_NOT_EXIST"
	// InvalidParameter [29].
	InvalidParameter ErrorID = "INVALID_PARAMETER"
)

// Error is an error with an identity. Text tells a person what is wrong and
// what to do. Test with errors.As, or with [IDOf].
type Error struct {
	ID   ErrorID
	Text string
	Err  error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Text + ": " + e.Err.Error()
	}
	return e.Text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// IDOf returns the identity of err: SystemError when it has none, "" for nil.
func IDOf(err error) ErrorID {
	if err == nil {
		return ""
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.ID
	}
	return SystemError
}
