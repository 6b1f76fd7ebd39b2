// Package transporttest holds what transports and their users are tested with:
// the conformance suite ([Run]), and doubles for tests of the engine, which need
// a peer without a network ([Peer], [Link]).
//
// A transport passes when a test like this one does:
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, transporttest.Harness{
//			Factory: remoting.NewFactory(),
//			Form:    "plain",
//			Address: func(testing.TB) string { return "127.0.0.1:0" },
//		})
//	}
//
// Only the standard library and the contracts are used, so that the module of
// a third party's transport stays light.
package transporttest
