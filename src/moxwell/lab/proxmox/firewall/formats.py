"""
Formats of firewall rule fields: addresses, ports, protocols, macros.

Address errors have the messages of Perl's Net::IP, which PVE uses.
"""

import contextlib
import ipaddress
import re

from moxwell.lab.proxmox.errors import FormatError

NAME = r"[A-Za-z][A-Za-z0-9_-]+"
ALIAS = re.compile(rf"^((dc|guest)/)?({NAME})$")
_PROTOCOLS = (
    "ip icmp igmp ggp ipencap st tcp egp igp pup udp hmp xns-idp rdp iso-tp4 dccp xtp ddp "
    "idpr-cmtp ipv6 ipv6-route ipv6-frag idrp rsvp gre esp ah skip ipv6-icmp icmpv6 ipv6-nonxt "
    "ipv6-opts rspf vmtp eigrp ospf ax.25 ipip etherip encap pim ipcomp vrrp l2tp isis sctp fc "
    "mobility-header udplite mpls-in-ip manet shim6 wesp rohc"
)
_SERVICES = """
tcpmux echo discard systat daytime netstat qotd chargen ftp-data ftp fsp ssh telnet smtp time whois
tacacs tacacs-ds domain bootps bootpc tftp gopher finger http kerberos iso-tsap acr-nema pop3
sunrpc auth nntp ntp epmap netbios-ns netbios-dgm netbios-ssn imap2 snmp snmp-trap cmip-man
cmip-agent mailq xdmcp bgp smux qmtp z3950 ipx ptp-event ptp-general pawserv zserv rpc2portmap
codaauth2 clearcase ldap svrloc https snpp microsoft-ds kpasswd submissions saft isakmp rtsp nqs
asf-rmcp qmqp ipp exec biff login who shell syslog printer talk ntalk route gdomap uucp klogin
kshell dhcpv6-client dhcpv6-server afpovertcp nntps submission ldaps tinc silc kerberos-adm
domain-s rsync ftps-data ftps telnets imaps pop3s socks proofd rootd openvpn rmiregistry lotusnote
ms-sql-s ms-sql-m ingreslock datametrics sa-msg-port kermit groupwise l2f radius radius-acct
cisco-sccp nfs gnunet rtcm-sc104 gsigatekeeper gris cvspserver venus venus-se codasrv codasrv-se
mon dict f5-globalsite gsiftp gpsd gds-db icpv2 isns iscsi-target mysql ms-wbt-server nut distcc
daap svn suucp sysrqd sieve epmd remctl f5-iquery ntske mqtt secure-mqtt sip sip-tls xmpp-client
xmpp-server cfengine mdns postgresql freeciv amqps amqp x11 gnutella-svc gnutella-rtr redis
sge-qmaster sge-execd mysql-proxy http-alt zabbix-agent zabbix-trapper amanda dicom hkp db-lsp dcap
gsidcap wnn6 rplay nbd git bacula-dir bacula-fd bacula-sd xmms2 afs3-fileserver afs3-callback
font-service
"""
PROTOCOLS, SERVICES = frozenset(_PROTOCOLS.split()), frozenset(_SERVICES.split())
WITH_PORTS = frozenset(["udp", "17", "udplite", "136", "tcp", "6", "dccp", "33", "sctp", "132"])
ICMP, ICMPV6 = frozenset({"icmp"}), frozenset({"icmpv6", "ipv6-icmp"})
_SHARED_TYPES = (
    "destination-unreachable port-unreachable communication-prohibited time-exceeded "
    "ttl-zero-during-transit ttl-zero-during-reassembly parameter-problem echo-request echo-reply "
    "router-solicitation router-advertisement redirect"
)
ICMP_TYPES = frozenset(
    f"{_SHARED_TYPES} any network-unreachable host-unreachable protocol-unreachable "
    "fragmentation-needed source-route-failed network-unknown host-unknown network-prohibited "
    "host-prohibited host-precedence-violation precedence-cutoff source-quench network-redirect "
    "host-redirect ip-header-bad required-option-missing timestamp-request timestamp-reply "
    "address-mask-request address-mask-reply".split()
)
ICMPV6_TYPES = frozenset(
    f"{_SHARED_TYPES} no-route beyond-scope address-unreachable failed-policy reject-route "
    "packet-too-big bad-header unknown-header-type unknown-option neighbor-solicitation "
    "neighbour-solicitation neighbor-advertisement neighbour-advertisement".split()
)
# macro: protocol/ports of each rule it expands to
_MACROS = """
Amanda udp/10080 tcp/10080;Auth tcp/113;BGP tcp/179;BitTorrent tcp/6881:6889 udp/6881;
BitTorrent32 tcp/6881:6999 udp/6881;CVS tcp/2401;Ceph tcp/6789 tcp/3300 tcp/6800:7300;
Citrix tcp/1494 udp/1604 tcp/2598;DAAP tcp/3689 udp/3689;DCC tcp/6277;DHCPfwd udp/67:68;
DHCPv6 udp/546:547;DNS udp/53 tcp/53;Distcc tcp/3632;FTP tcp/21;Finger tcp/79;
GNUnet tcp/2086 udp/2086 tcp/1080 udp/1080;GRE 47;Git tcp/9418;HKP tcp/11371;HTTP tcp/80;
HTTPS tcp/443;ICPV2 udp/3130;ICQ tcp/5190;IMAP tcp/143;IMAPS tcp/993;IPIP 94;IPsec udp/500 50;
IPsecah udp/500 51;IPsecnat udp/500 udp/4500 50;IRC tcp/6667;Jetdirect tcp/9100;L2TP udp/1701;
LDAP tcp/389;LDAPS tcp/636;MDNS udp/5353;MSNP tcp/1863;MSSQL tcp/1433;
Mail tcp/25 tcp/465 tcp/587;Munin tcp/4949;MySQL tcp/3306;NNTP tcp/119;NNTPS tcp/563;NTP udp/123;
NeighborDiscovery icmpv6;OSPF 89;OpenVPN udp/1194;PBS tcp/8007;PCA udp/5632 tcp/5631;PMG tcp/8006;
POP3 tcp/110;POP3S tcp/995;PPtP 47 tcp/1723;Ping icmp/echo-request;PostgreSQL tcp/5432;
Printer tcp/515;RDP tcp/3389;RIP udp/520;RNDC tcp/953;Razor tcp/2703;Rdate tcp/37;Rsync tcp/873;
SANE tcp/6566;SMB udp/135,445 udp/137:139 udp/1024:65535 tcp/135,139,445;SMBswat tcp/901;
SMTP tcp/25;SMTPS tcp/465;SNMP udp/161:162 tcp/161;SPAMD tcp/783;SPICEproxy tcp/3128;SSH tcp/22;
SVN tcp/3690;SixXS tcp/3874 udp/3740 41 udp/5072,8374;Squid tcp/3128;Submission tcp/587;
Syslog udp/514 tcp/514;TFTP udp/69;Telnet tcp/23;Telnets tcp/992;Time tcp/37;
Trcrt udp/33434:33524 icmp/echo-request;VNC tcp/5900:5999;VNCL tcp/5500;Web tcp/80 tcp/443;
Webcache tcp/8080;Webmin tcp/10000;Whois tcp/43
"""
MACROS = {
    line.split()[0]: tuple(line.split()[1:]) for line in _MACROS.split(";") if line.strip()
}  # fmt: skip
MACRO_NAMES = {name.lower(): name for name in MACROS}


def net_ip(text: str) -> int:
    """The IP version of an address, network or range; raises the errors of Net::IP."""
    first, dash, last = text.partition("-")
    address, slash, prefix = first.partition("/")
    version = 6 if ":" in address else 4
    if version == 4:
        _quads(address)
    bits = 32 if version == 4 else 128
    if slash and (not prefix.isdigit() or int(prefix) > bits):
        raise FormatError(f"Prefix length {prefix} is longer than IP address ({bits})")
    try:
        ipaddress.ip_network(first) if slash else ipaddress.ip_address(address)
        if dash:
            ipaddress.ip_address(last)
    except ValueError as problem:
        text = f"Invalid prefix {address}/{prefix}" if slash else f"Invalid chars in IP {text}"
        raise FormatError(text) from problem
    return version


def _quads(address: str) -> None:
    if not re.fullmatch(r"[0-9.]+", address):
        raise FormatError(f"Invalid chars in IP {address}")
    for quad in address.split("."):
        if not quad or int(quad) > 255:
            raise FormatError(f"Invalid quad in IP address {address} - {quad}")


def address_spec(value: str) -> int | None:
    """Check a source or destination; returns the IP version if it contains addresses."""
    if value.startswith("+") or ALIAS.match(value):
        if len(value) > 65:
            what = "ipset" if value.startswith("+") else "alias"
            raise FormatError(f"{what} name too long\n")
        return None
    items, versions = value.split(","), set()
    if not all(items):
        raise FormatError("extraneous commas in list\n")
    for item in items:
        try:
            versions.add(net_ip(item))
        except FormatError as problem:
            raise FormatError(f"invalid IP address: {problem}\n") from problem
    if len(versions) > 1:
        raise FormatError(f"detected mixed ipv4/ipv6 addresses in address list '{value}'\n")
    if len(items) > 1 and "-" in value:
        raise FormatError("you can't use a range in a list\n")
    return versions.pop()


def ip_or_cidr(value: str) -> None:
    address, slash, prefix = value.partition("/")
    version = 0
    with contextlib.suppress(ValueError):
        version = ipaddress.ip_address(address).version
    if not version or (slash and not prefix.isdigit()):
        raise FormatError("value does not look like a valid IP address or CIDR network\n")
    bits = 32 if version == 4 else 128
    if slash and int(prefix) > bits:
        raise FormatError(f"Prefix length {prefix} is longer than IP address ({bits})\n")


def ip_or_cidr_or_alias(value: str) -> None:
    if not ALIAS.match(value):
        ip_or_cidr(value)


def clean_cidr(value: str) -> str:
    """A network without host bits; a single address without prefix length."""
    if ALIAS.match(value):
        return value
    network = ipaddress.ip_network(value, strict=False)
    single = network.prefixlen == network.max_prefixlen
    return str(network.network_address) if single else str(network)


def port_spec(value: str) -> None:
    _ports(value, frozenset())


def dport_spec(value: str) -> None:
    """Check destination ports; also accepts ICMP types, for compatibility."""
    _ports(value, ICMP_TYPES | ICMPV6_TYPES)


def _ports(value: str, also: frozenset[str]) -> None:
    items, count = value.split(","), 0
    if not all(items):
        raise FormatError("extraneous commas in list\n")
    for item in items:
        parts = item.split(":") if re.fullmatch(r"\d+:\d+", item) else [item]
        for port in parts:
            count += port.isdigit()
            if int(port) > 65535 if port.isdigit() else port not in SERVICES | also:
                raise FormatError(f"invalid port '{port}'\n")
        if len(parts) == 2 and int(parts[0]) > int(parts[1]):
            low, high = parts
            text = f"backwards range '{low}:{high}' not allowed, did you mean '{high}:{low}'?"
            raise FormatError(text + "\n")
    if count > 15:
        raise FormatError("too many entries in port list (> 15 numbers)\n")


def protocol_spec(value: str) -> None:
    number = value.isdigit() and int(value) < 256
    if value and not number and value not in PROTOCOLS:
        raise FormatError(f"unknown protocol '{value}'\n")


def icmp_type_spec(value: str) -> None:
    if value and value not in ICMP_TYPES | ICMPV6_TYPES:
        raise FormatError(f"invalid icmp-type value '{value}'\n")
