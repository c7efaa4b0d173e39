"""The descriptions of the firewall macros."""

from collections.abc import Mapping
from types import MappingProxyType

_TEXT = """
Amanda: Amanda Backup
Auth: Auth (identd) traffic
BGP: Border Gateway Protocol traffic
BitTorrent: BitTorrent traffic for BitTorrent 3.1 and earlier
BitTorrent32: BitTorrent traffic for BitTorrent 3.2 and later
Ceph: Ceph Storage Cluster traffic (Ceph Monitors, OSD & MDS Daemons)
CVS: Concurrent Versions System pserver traffic
Citrix: Citrix/ICA traffic (ICA, ICA Browser, CGP)
DAAP: Digital Audio Access Protocol traffic (iTunes, Rythmbox daemons)
DCC: Distributed Checksum Clearinghouse spam filtering mechanism
DHCPfwd: Forwarded DHCP traffic
DHCPv6: DHCPv6 traffic
DNS: Domain Name System traffic (upd and tcp)
Distcc: Distributed Compiler service
FTP: File Transfer Protocol
Finger: Finger protocol (RFC 742)
GNUnet: GNUnet secure peer-to-peer networking traffic
GRE: Generic Routing Encapsulation tunneling protocol
Git: Git distributed revision control traffic
HKP: OpenPGP HTTP key server protocol traffic
HTTP: Hypertext Transfer Protocol (WWW)
HTTPS: Hypertext Transfer Protocol (WWW) over SSL
ICPV2: Internet Cache Protocol V2 (Squid) traffic
ICQ: AOL Instant Messenger traffic
IMAP: Internet Message Access Protocol
IMAPS: Internet Message Access Protocol over SSL
IPIP: IPIP capsulation traffic
IPsec: IPsec traffic
IPsecah: IPsec authentication (AH) traffic
IPsecnat: IPsec traffic and Nat-Traversal
IRC: Internet Relay Chat traffic
Jetdirect: HP Jetdirect printing
L2TP: Layer 2 Tunneling Protocol traffic
LDAP: Lightweight Directory Access Protocol traffic
LDAPS: Secure Lightweight Directory Access Protocol traffic
MDNS: Multicast DNS
MSNP: Microsoft Notification Protocol
MSSQL: Microsoft SQL Server
Mail: Mail traffic (SMTP, SMTPS, Submission)
Munin: Munin networked resource monitoring traffic
MySQL: MySQL server
NNTP: NNTP traffic (Usenet).
NNTPS: Encrypted NNTP traffic (Usenet)
NTP: Network Time Protocol (ntpd)
NeighborDiscovery: IPv6 neighbor solicitation, neighbor and router advertisement
OSPF: OSPF multicast traffic
OpenVPN: OpenVPN traffic
PBS: Proxmox Backup Server
PCA: Symantec PCAnywere (tm)
PMG: Proxmox Mail Gateway web interface
POP3: POP3 traffic
POP3S: Encrypted POP3 traffic
PPtP: Point-to-Point Tunneling Protocol
Ping: ICMP echo request
PostgreSQL: PostgreSQL server
Printer: Line Printer protocol printing
RDP: Microsoft Remote Desktop Protocol traffic
RIP: Routing Information Protocol (bidirectional)
RNDC: BIND remote management protocol
Razor: Razor Antispam System
Rdate: Remote time retrieval (rdate)
Rsync: Rsync server
SANE: SANE network scanning
SMB: Microsoft SMB traffic
SMBswat: Samba Web Administration Tool
SMTP: Simple Mail Transfer Protocol
SMTPS: Encrypted Simple Mail Transfer Protocol
SNMP: Simple Network Management Protocol
SPAMD: Spam Assassin SPAMD traffic
SPICEproxy: Proxmox VE SPICE display proxy traffic
SSH: Secure shell traffic
SVN: Subversion server (svnserve)
SixXS: SixXS IPv6 Deployment and Tunnel Broker
Squid: Squid web proxy traffic
Submission: Mail message submission traffic
Syslog: Syslog protocol (RFC 5424) traffic
TFTP: Trivial File Transfer Protocol traffic
Telnet: Telnet traffic
Telnets: Telnet over SSL
Time: RFC 868 Time protocol
Trcrt: Traceroute (for up to 30 hops) traffic
VNC: VNC traffic for VNC display's 0 - 99
VNCL: VNC traffic from Vncservers to Vncviewers in listen mode
Web: WWW traffic (HTTP and HTTPS)
Webcache: Web Cache/Proxy traffic (port 8080)
Webmin: Webmin traffic
Whois: Whois (nicname, RFC 3912) traffic
"""
DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    dict(line.split(": ", 1) for line in _TEXT.strip().splitlines())
)
